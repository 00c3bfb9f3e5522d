# Roles of the processes and what they may do with the ledger. Audit tables take no INSERT from
# anybody: entries come from the function alone, which runs with its owner's rights.

from collections.abc import Sequence

from django.db import migrations

from ledger_app.sql import (
    READONLY,
    RUNTIME_ROLES,
    create_roles_sql,
    grant_execute_sql,
    grant_sql,
    revoke_execute_sql,
    revoke_sql,
)

APPEND = "public.ledger_audit_append(text, uuid, text, text, bytea)"
EVERYBODY = (*RUNTIME_ROLES, READONLY)
READ = ("SELECT",)
ADD = ("SELECT", "INSERT")
CHANGE = ("SELECT", "INSERT", "UPDATE")


def grant(table: str, verbs: Sequence[str], roles: Sequence[str]) -> migrations.RunSQL:
    return migrations.RunSQL(grant_sql(table, verbs, roles), revoke_sql(table, verbs, roles))


class Migration(migrations.Migration):
    dependencies = [("ledger_app", "0002_append_only")]

    operations = [
        # Roles belong to the server and stay when the schema goes.
        migrations.RunSQL(create_roles_sql(), migrations.RunSQL.noop),
        migrations.RunSQL(grant_execute_sql(APPEND), revoke_execute_sql(APPEND)),
        grant("ledger_app_auditstream", READ, EVERYBODY),
        grant("ledger_app_auditentry", READ, EVERYBODY),
        grant("ledger_app_effect", CHANGE, RUNTIME_ROLES),
        grant("ledger_app_receipt", ADD, RUNTIME_ROLES),
        grant("ledger_app_usage", ADD, RUNTIME_ROLES),
        grant("ledger_app_effect", READ, (READONLY,)),
        grant("ledger_app_receipt", READ, (READONLY,)),
        grant("ledger_app_usage", READ, (READONLY,)),
    ]
