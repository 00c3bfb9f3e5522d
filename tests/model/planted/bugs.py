"""The planted bugs, each as the words that change.

Some guards of the engine stand twice, so that one alone can be missing without any harm; a bug of
that kind takes both away. docs/explanation/how-it-is-proven.md tells which.
"""

from tests.model.planted.editing import Bug, Edit

_SESSION = "tasks_app.engine.session:SliceSession"
_EFFECT = "tasks_app.engine.effect_runner:run_effect"

BUGS = (
    Bug(
        "commit_without_fence",
        "The step commit does not compare the fence: a zombie writes results.",
        (
            Edit(
                "tasks_app.engine.commit_sql:_statement",
                "_OWNED.format(",
                "_OWNED.replace('t.fence = %(fence)s AND ', '').format(",
            ),
        ),
    ),
    Bug(
        "slice_without_fence",
        "Nothing that a slice writes compares the fence: lock, commit and move.",
        (
            Edit(
                "tasks_app.engine.commit_sql:_statement",
                "_OWNED.format(",
                "_OWNED.replace('t.fence = %(fence)s AND ', '').format(",
            ),
            Edit(
                "tasks_app.engine.commit_sql:_statement",
                "{_GUARD}",
                "{_GUARD.replace('t.fence = %(fence)s AND ', '')}",
            ),
            Edit(
                "tasks_app.engine.sql:OWN",
                "AND fence = %(fence)s AND",
                "AND",
            ),
            Edit(
                "tasks_app.engine.sql:BEGIN_ACT",
                "AND fence = %(fence)s AND",
                "AND",
            ),
            Edit(
                "tasks_app.engine.transitions:move",
                "check_edge(source, target)",
                "fence = check_edge(source, target)",
            ),
        ),
    ),
    Bug(
        "call_before_begin",
        "The other side is called before the ledger knows of the act.",
        (
            Edit(
                _EFFECT,
                "row = _begin(session, step, declared, approval)",
                "early = step_runner.call(session, step, declared,"
                " lambda ctx: method(ctx, *positional, **named))\n"
                "    row = _begin(session, step, declared, approval)",
            ),
            Edit(
                _EFFECT,
                """result = step_runner.call(
            session,
            step,
            declared,
            lambda ctx: method(ctx, *positional, **named),
            margin_seconds=_margin_seconds(declared),
        )""",
                "result = early",
            ),
        ),
    ),
    Bug(
        "checkpoint_before_result",
        "Checkpoint and cursor are committed first, the step's result afterwards.",
        (
            Edit(
                f"{_SESSION}._write",
                "held, self._held = self._held, Held()",
                "held, self._held = self._held, Held()\n"
                "    late, held.steps = (held.steps, {}) if reason else ({}, held.steps)",
            ),
            Edit(
                f"{_SESSION}._write",
                "self._committed(row[:4], held, is_checkpoint=document is not None)",
                "self._committed(row[:4], held, is_checkpoint=document is not None)\n"
                "    if late:\n"
                "        self._held.steps = late\n"
                "        self.commit()",
            ),
        ),
    ),
    Bug(
        "renewal_in_the_steps_transaction",
        "The lease is renewed in a transaction that is undone, and the slice believes in it.",
        (
            Edit(
                "tasks_app.engine.lease:Keeper._renew",
                "with connection.cursor() as cursor:",
                "with transaction.atomic(), connection.cursor() as cursor:",
            ),
            Edit(
                "tasks_app.engine.lease:Keeper._renew",
                "row = cursor.fetchone()",
                "row = cursor.fetchone()\n        transaction.set_rollback(True)",
            ),
        ),
    ),
    Bug(
        "lock_order_swapped",
        "A slice locks the head of the audit before the task; people do it the other way round.",
        (
            Edit(
                f"{_SESSION}.owned",
                "with transaction.atomic(durable=True):",
                "with transaction.atomic(durable=True):\n"
                "        from ledger_app.models import AuditStream\n"
                "        heads = AuditStream.objects.filter(stream=f'task:{task.id}')\n"
                "        list(heads.select_for_update())",
            ),
        ),
    ),
    Bug(
        "take_over_without_a_new_fence",
        "Neither recovery nor the claim after it raises the fence.",
        (
            Edit("tasks_app.engine.recovery:_recover", "raise_fence=True", "raise_fence=False"),
            Edit(
                "tasks_app.engine.queue_sql:CLAIM",
                "fence = t.fence + 1",
                "fence = t.fence + (t.status <> 'recovering')::int",
            ),
        ),
    ),
    Bug(
        "cursor_not_saved",
        "The steering cursor is not written in the commit that applies a command.",
        (
            Edit(
                "tasks_app.engine.steering:_record",
                "Task.objects.for_tenant(task.tenant_id).filter(pk=task.pk)"
                ".update(steering_cursor=cursor)",
                "del cursor",
            ),
        ),
    ),
    Bug(
        "priority_carries_the_cursor_away",
        "The cursor goes to the newest decided command, past one that waits (found by seed 1).",
        (
            Edit(
                "tasks_app.engine.steering:_record",
                "cursor = _cursor(task)",
                "cursor = command.seq",
            ),
        ),
    ),
    Bug(
        "approval_without_digest",
        "An approval lets through whatever the act's arguments have become.",
        (
            Edit(
                "tasks_app.engine.approvals:consume",
                "args_sha256=args_sha256,",
                "",
            ),
        ),
    ),
    Bug(
        "expired_approval_counts",
        "An approval is used after its time.",
        (Edit("tasks_app.engine.approvals:consume", "expires_at__gt=Now(),", ""),),
    ),
    Bug(
        "message_forgotten_when_sent",
        "The owed message is deleted when it is sent, not at the claim, and nobody owes it again.",
        (
            Edit(
                "tasks_app.engine.continuation:send_all",
                "queue=QUEUE)",
                "queue=QUEUE)\n            forget(task_id, _tenant_id)",
            ),
            Edit(
                "tasks_app.engine.recovery:owe_due",
                "with transaction.atomic",
                "return 0\n    with transaction.atomic",
            ),
        ),
    ),
    Bug(
        "begin_ignores_the_stored_state",
        "An act is begun again whatever the ledger knows of it.",
        (
            Edit(
                "ledger_app.services.effects:BEGUN",
                "AND (e.state IN ('planned', 'failed')"
                " OR (e.state = 'begun' AND e.kind <> 'opaque'))",
                "",
            ),
        ),
    ),
    Bug(
        "queryable_not_asked",
        "After a crash the other side is called again without asking what it knows.",
        (Edit(_EFFECT, "declared.find and row.attempts > 1", "declared.find and not row"),),
    ),
    Bug(
        "claim_without_lock",
        "Two workers choose the same task, since the claim does not lock what it reads.",
        (
            Edit("tasks_app.engine.queue_sql:CLAIM", "FOR UPDATE OF t SKIP LOCKED", ""),
            Edit("tasks_app.engine.queue_sql:CLAIM", "FOR UPDATE SKIP LOCKED) found", ") found"),
        ),
    ),
    Bug(
        "resume_one_step_too_far",
        "Whoever takes a task over passes over the step that was open.",
        (
            Edit(
                "tasks_app.engine.slice_runner:_open",
                "session.next_position = document.next_position",
                "session.next_position = document.next_position + lease.recovered",
            ),
        ),
    ),
    Bug(
        "pushed_before_the_commit",
        "Events are pushed inside the transaction that they tell of.",
        (
            Edit(
                "tasks_app.engine.transitions:tell",
                "transaction.on_commit(",
                "(lambda act, robust: act())(",
            ),
        ),
    ),
    Bug(
        "version_not_compared",
        "A command is accepted whatever version it was meant for.",
        (
            Edit(
                "tasks_app.admission.commands:_check_acceptable",
                "require_version(task, expected_version)",
                "require_version(task, task.state_version)",
            ),
        ),
    ),
    Bug(
        "usage_counted_for_each_try",
        "What a call used is counted again when its step runs again.",
        (
            Edit(
                "ledger_app.services.usage:record",
                "[tenant_id, task_id, source_id, caller",
                "[tenant_id, task_id, f'{source_id} {id(object())}', caller",
            ),
        ),
    ),
    Bug(
        "move_not_audited",
        "A change of status leaves no entry in the audit.",
        (
            Edit(
                "tasks_app.engine.transitions:move",
                "audit.append_sql(",
                '(lambda **_: ("0", []))(',
            ),
        ),
    ),
    Bug(
        "no_receipt_without_success",
        "A task that fails or is cancelled ends without a receipt.",
        (
            Edit(
                "tasks_app.engine.delivery:close",
                "receipt_id, delivered = _put_receipt(tenant_id, task_id, target.value, handed)",
                "receipt_id, delivered = None, None",
            ),
        ),
    ),
)
