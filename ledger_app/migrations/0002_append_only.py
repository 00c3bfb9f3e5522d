# The audit function and the guards. Frozen text: a later change is a later migration.
# Everything is named with its schema and the function has a fixed search path, so that no
# object of a caller can stand in for ours.

from django.db import migrations

APPEND = """
CREATE FUNCTION public.ledger_audit_append(
    p_stream text, p_tenant uuid, p_envelope text, p_details text, p_salt bytea
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $append$
DECLARE
    marker CONSTANT text := '"at":"@now@"';
    parsed jsonb := p_envelope::jsonb;
    head record;
    next_seq bigint;
    written_at timestamptz;
    final_envelope text;
    digest bytea;
    entry_hash bytea;
BEGIN
    IF parsed ->> 'stream' IS DISTINCT FROM p_stream
        OR parsed ->> 'tenant' IS DISTINCT FROM p_tenant::text
        OR parsed ->> 'at' IS DISTINCT FROM '@now@'
        OR length(p_envelope) - length(replace(p_envelope, marker, '')) <> length(marker)
    THEN
        RAISE EXCEPTION 'the envelope does not belong to stream % of tenant %', p_stream, p_tenant
            USING ERRCODE = 'check_violation';
    END IF;
    IF (p_details IS NULL) <> (p_salt IS NULL) OR length(p_salt) <> 16 THEN
        RAISE EXCEPTION 'details come with a salt of 16 bytes' USING ERRCODE = 'check_violation';
    END IF;
    LOOP
        SELECT s.head_seq, s.head_hash, s.tenant_id INTO head
            FROM public.ledger_app_auditstream AS s WHERE s.stream = p_stream FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO public.ledger_app_auditstream (stream, tenant_id, head_seq, head_hash)
            VALUES (p_stream, p_tenant, 0,
                sha256('audit-genesis-v1'::bytea || convert_to(p_stream, 'UTF8')))
            ON CONFLICT (stream) DO NOTHING;
    END LOOP;
    IF head.tenant_id <> p_tenant THEN
        RAISE EXCEPTION 'stream % belongs to another tenant', p_stream
            USING ERRCODE = 'check_violation';
    END IF;
    -- After the lock: the time of an entry is not from before its wait.
    written_at := clock_timestamp();
    next_seq := head.head_seq + 1;
    final_envelope := replace(p_envelope, marker, '"at":"'
        || to_char(written_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"');
    digest := sha256(coalesce(p_salt || convert_to(p_details, 'UTF8'), ''::bytea));
    entry_hash := sha256('audit-entry-v1'::bytea || sha256(convert_to(p_stream, 'UTF8'))
        || int8send(next_seq) || head.head_hash
        || sha256(convert_to(final_envelope, 'UTF8')) || digest);
    INSERT INTO public.ledger_app_auditentry
        (stream, seq, at, envelope, details, salt, details_digest, prev_hash, hash)
        VALUES (p_stream, next_seq, written_at, final_envelope, p_details, p_salt, digest,
            head.head_hash, entry_hash);
    UPDATE public.ledger_app_auditstream AS s SET head_seq = next_seq, head_hash = entry_hash
        WHERE s.stream = p_stream;
    RETURN next_seq;
END
$append$;
COMMENT ON FUNCTION public.ledger_audit_append(text, uuid, text, text, bytea) IS
    'The only writer of the audit chain; call it last in the transaction.';
ALTER TABLE public.ledger_app_auditstream SET (fillfactor = 70);
"""

APPEND_BACK = """
ALTER TABLE public.ledger_app_auditstream RESET (fillfactor);
DROP FUNCTION public.ledger_audit_append(text, uuid, text, text, bytea);
"""

# ENABLE ALWAYS: session_replication_role does not switch these triggers off. No trigger on
# TRUNCATE: the runtime roles lack the privilege, and a test run's flush needs it.
GUARDS = """
CREATE FUNCTION public.ledger_refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $refuse$
BEGIN
    RAISE EXCEPTION '% of % refused: rows are append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$refuse$;

CREATE TRIGGER audit_entry_append_only BEFORE UPDATE OR DELETE ON public.ledger_app_auditentry
    FOR EACH ROW EXECUTE FUNCTION public.ledger_refuse_change();
ALTER TABLE public.ledger_app_auditentry ENABLE ALWAYS TRIGGER audit_entry_append_only;

CREATE TRIGGER receipt_append_only BEFORE UPDATE OR DELETE ON public.ledger_app_receipt
    FOR EACH ROW EXECUTE FUNCTION public.ledger_refuse_change();
ALTER TABLE public.ledger_app_receipt ENABLE ALWAYS TRIGGER receipt_append_only;

CREATE TRIGGER usage_append_only BEFORE UPDATE OR DELETE ON public.ledger_app_usage
    FOR EACH ROW EXECUTE FUNCTION public.ledger_refuse_change();
ALTER TABLE public.ledger_app_usage ENABLE ALWAYS TRIGGER usage_append_only;

CREATE TRIGGER audit_stream_moves_by_one BEFORE UPDATE ON public.ledger_app_auditstream
    FOR EACH ROW
    WHEN (NEW.head_seq <> OLD.head_seq + 1 OR NEW.stream <> OLD.stream
        OR NEW.tenant_id <> OLD.tenant_id)
    EXECUTE FUNCTION public.ledger_refuse_change();
ALTER TABLE public.ledger_app_auditstream ENABLE ALWAYS TRIGGER audit_stream_moves_by_one;

CREATE TRIGGER audit_stream_stays BEFORE DELETE ON public.ledger_app_auditstream
    FOR EACH ROW EXECUTE FUNCTION public.ledger_refuse_change();
ALTER TABLE public.ledger_app_auditstream ENABLE ALWAYS TRIGGER audit_stream_stays;
"""

GUARDS_BACK = """
DROP TRIGGER audit_stream_stays ON public.ledger_app_auditstream;
DROP TRIGGER audit_stream_moves_by_one ON public.ledger_app_auditstream;
DROP TRIGGER usage_append_only ON public.ledger_app_usage;
DROP TRIGGER receipt_append_only ON public.ledger_app_receipt;
DROP TRIGGER audit_entry_append_only ON public.ledger_app_auditentry;
DROP FUNCTION public.ledger_refuse_change();
"""

# The pairs are domain.effects.EDGES, plus staying where the act is still open (a retry raises
# attempts and fence). A test compares the two.
EFFECTS = """
CREATE FUNCTION public.ledger_refuse_effect() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $refuse$
BEGIN
    IF TG_OP = 'INSERT' THEN
        RAISE EXCEPTION 'an effect begins planned or begun, not %', NEW.state
            USING ERRCODE = 'restrict_violation';
    END IF;
    RAISE EXCEPTION 'effect % refused: % to %, fence % to %',
        OLD.key, OLD.state, NEW.state, OLD.fence, NEW.fence
        USING ERRCODE = 'restrict_violation';
END
$refuse$;

CREATE TRIGGER effect_first_state BEFORE INSERT ON public.ledger_app_effect
    FOR EACH ROW WHEN (NEW.state NOT IN ('planned', 'begun'))
    EXECUTE FUNCTION public.ledger_refuse_effect();
ALTER TABLE public.ledger_app_effect ENABLE ALWAYS TRIGGER effect_first_state;

CREATE TRIGGER effect_edges BEFORE UPDATE ON public.ledger_app_effect
    FOR EACH ROW
    WHEN (
        (OLD.state, NEW.state) NOT IN (
            ('planned', 'planned'), ('planned', 'begun'), ('planned', 'failed'),
            ('begun', 'begun'), ('begun', 'succeeded'), ('begun', 'failed'), ('begun', 'in_doubt'),
            ('failed', 'begun'),
            ('in_doubt', 'in_doubt'), ('in_doubt', 'succeeded'), ('in_doubt', 'failed'),
            ('in_doubt', 'begun'),
            ('succeeded', 'compensated')
        )
        OR NEW.fence < OLD.fence
        OR NEW.attempts < OLD.attempts
        OR (OLD.state = 'succeeded' AND NEW.response IS DISTINCT FROM OLD.response)
        OR (NEW.id, NEW.tenant_id, NEW.task_id, NEW.step_key, NEW.key, NEW.kind, NEW.tool,
            NEW.target, NEW.args_sha256, NEW.created_at)
            IS DISTINCT FROM (OLD.id, OLD.tenant_id, OLD.task_id, OLD.step_key, OLD.key, OLD.kind,
            OLD.tool, OLD.target, OLD.args_sha256, OLD.created_at)
    )
    EXECUTE FUNCTION public.ledger_refuse_effect();
ALTER TABLE public.ledger_app_effect ENABLE ALWAYS TRIGGER effect_edges;
"""

EFFECTS_BACK = """
DROP TRIGGER effect_edges ON public.ledger_app_effect;
DROP TRIGGER effect_first_state ON public.ledger_app_effect;
DROP FUNCTION public.ledger_refuse_effect();
"""


class Migration(migrations.Migration):
    dependencies = [("ledger_app", "0001_ledger")]

    operations = [
        migrations.RunSQL(APPEND, APPEND_BACK),
        migrations.RunSQL(GUARDS, GUARDS_BACK),
        migrations.RunSQL(EFFECTS, EFFECTS_BACK),
    ]
