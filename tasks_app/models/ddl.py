"""Schema that Django cannot express: composite foreign keys, the edge trigger, storage options.

Migrations call these builders; tests/architecture compares the database with what they return, so
a change of the edge table without a migration is found.
"""

from collections.abc import Sequence

from ledger_app.sql import RUNTIME_ROLES
from tasks_app.domain.checkpoint import KEEP_NEWEST, NAMED_REASONS
from tasks_app.domain.states import EDGES

# (child table, column, parent table): both rows must belong to one tenant (S20). Each migration
# adds its own; the first ones are of 0002.
FIRST_COMPOSITE_KEYS = (
    ("tasks_app_apikey", "owner_agent_id", "tasks_app_agentidentity"),
    ("tasks_app_apikey", "replaces_id", "tasks_app_apikey"),
    ("tasks_app_task", "thread_id", "tasks_app_thread"),
    ("tasks_app_task", "agent_id", "tasks_app_agentidentity"),
    ("tasks_app_task", "api_key_id", "tasks_app_apikey"),
    ("tasks_app_slice", "task_id", "tasks_app_task"),
    ("tasks_app_step", "task_id", "tasks_app_task"),
    ("tasks_app_steprange", "task_id", "tasks_app_task"),
    ("tasks_app_steprange", "step_id", "tasks_app_step"),
    ("tasks_app_attempt", "task_id", "tasks_app_task"),
    ("tasks_app_attempt", "step_id", "tasks_app_step"),
    ("tasks_app_checkpoint", "task_id", "tasks_app_task"),
    ("tasks_app_outbox", "task_id", "tasks_app_task"),
    ("tasks_app_steeringcommand", "task_id", "tasks_app_task"),
    ("tasks_app_approval", "task_id", "tasks_app_task"),
    ("tasks_app_approval", "step_id", "tasks_app_step"),
    ("tasks_app_approvaldecision", "approval_id", "tasks_app_approval"),
    ("tasks_app_event", "task_id", "tasks_app_task"),
    ("tasks_app_artifact", "task_id", "tasks_app_task"),
)
REPAIR_KEYS = (
    ("tasks_app_task", "forked_from_id", "tasks_app_task"),
    ("tasks_app_repair", "task_id", "tasks_app_task"),
    ("tasks_app_repair", "forked_task_id", "tasks_app_task"),
)
PLAN_KEYS = (("tasks_app_planversion", "task_id", "tasks_app_task"),)
CHILD_KEYS = (
    ("tasks_app_task", "parent_id", "tasks_app_task"),
    ("tasks_app_task", "parent_step_id", "tasks_app_step"),
)
BUDGET_KEYS = (
    ("tasks_app_budget", "agent_id", "tasks_app_agentidentity"),
    ("tasks_app_budget", "task_id", "tasks_app_task"),
    ("tasks_app_reservation", "task_id", "tasks_app_task"),
)
THREAD_KEYS = (
    ("tasks_app_threadstate", "thread_id", "tasks_app_thread"),
    ("tasks_app_threadstate", "task_id", "tasks_app_task"),
    ("tasks_app_threadstate", "parent_id", "tasks_app_threadstate"),
    ("tasks_app_run", "task_id", "tasks_app_task"),
    ("tasks_app_run", "thread_id", "tasks_app_thread"),
    ("tasks_app_run", "base_state_id", "tasks_app_threadstate"),
    ("tasks_app_run", "final_state_id", "tasks_app_threadstate"),
)
SCHEDULE_KEYS = (
    ("tasks_app_schedule", "thread_id", "tasks_app_thread"),
    ("tasks_app_schedule", "last_task_id", "tasks_app_task"),
)
WEBHOOK_KEYS = (
    ("tasks_app_task", "webhook_id", "tasks_app_webhookendpoint"),
    ("tasks_app_webhookdelivery", "endpoint_id", "tasks_app_webhookendpoint"),
    ("tasks_app_webhookdelivery", "task_id", "tasks_app_task"),
)
MCP_KEYS = (("tasks_app_withdrawnrequest", "task_id", "tasks_app_task"),)
COMPOSITE_KEYS = (
    *FIRST_COMPOSITE_KEYS,
    *REPAIR_KEYS,
    *PLAN_KEYS,
    *CHILD_KEYS,
    *BUDGET_KEYS,
    *THREAD_KEYS,
    *SCHEDULE_KEYS,
    *WEBHOOK_KEYS,
    *MCP_KEYS,
)

# Facts of admission that no later statement may name (S9); the first ones are of 0002.
FIRST_ADMISSION_FACTS = (
    "tenant_id",
    "initiator_id",
    "agent_id",
    "agent_version",
    "api_key_id",
    "source",
    "tool_grants",
    "policy_version",
    "idempotency_key",
    "created_at",
)
ADMISSION_FACTS = (*FIRST_ADMISSION_FACTS, "parent_id", "parent_step_id")

# Rows that may be added but never changed or removed, by anyone.
FIRST_APPEND_ONLY = ("tasks_app_checkpoint", "tasks_app_event", "tasks_app_approvaldecision")
APPEND_ONLY = (
    *FIRST_APPEND_ONLY,
    "tasks_app_repair",
    "tasks_app_planversion",
    "tasks_app_price",
    "tasks_app_threadstate",
)


def composite_key_sql(
    keys: Sequence[tuple[str, str, str]] = FIRST_COMPOSITE_KEYS,
) -> tuple[str, str]:
    """Return SQL that adds and removes composite foreign keys."""
    add, drop = [], []
    for child, column, parent in keys:
        name = f"{child.removeprefix('tasks_app_')}_{column}_tenant_fk"
        add.append(
            f"ALTER TABLE {child} ADD CONSTRAINT {name} "
            f"FOREIGN KEY (tenant_id, {column}) REFERENCES {parent} (tenant_id, id);"
        )
        drop.append(f"ALTER TABLE {child} DROP CONSTRAINT {name};")
    return "\n".join(add), "\n".join(drop)


def edges_literal() -> str:
    """Return the allowed edges as a sorted SQL array of 'source>target'."""
    edges = sorted(f"'{source}>{target}'" for source in EDGES for target in EDGES[source])
    return f"ARRAY[{', '.join(edges)}]"


def edge_trigger_sql() -> tuple[str, str]:
    """Return SQL of the trigger that refuses any other edge, even from psql (E30).

    It also refuses a falling fence or version, and any change to the facts of admission (S9).
    """
    return (
        f"""
CREATE OR REPLACE FUNCTION tasks_app_guard_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status <> OLD.status AND NOT (OLD.status || '>' || NEW.status) = ANY ({edges_literal()})
  THEN
    RAISE EXCEPTION 'task %: no edge % -> %', OLD.id, OLD.status, NEW.status
      USING ERRCODE = 'check_violation', CONSTRAINT = 'task_status_edge';
  END IF;
  IF NEW.fence < OLD.fence OR NEW.state_version < OLD.state_version THEN
    RAISE EXCEPTION 'task %: fence and state_version never fall', OLD.id
      USING ERRCODE = 'check_violation', CONSTRAINT = 'task_counters_grow';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER task_guard BEFORE UPDATE OF status, fence, state_version ON tasks_app_task
  FOR EACH ROW EXECUTE FUNCTION tasks_app_guard_task();
CREATE OR REPLACE FUNCTION tasks_app_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% on % is refused: its rows are final', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'check_violation';
END $$;
{admission_trigger_sql(FIRST_ADMISSION_FACTS)}""",
        """
DROP TRIGGER task_admission_final ON tasks_app_task;
DROP TRIGGER task_guard ON tasks_app_task;
DROP FUNCTION tasks_app_guard_task();
DROP FUNCTION tasks_app_refuse_change();
""",
    )


def admission_trigger_sql(facts: Sequence[str]) -> str:
    """Return SQL of the trigger that refuses every statement that would change these columns."""
    return f"""
CREATE OR REPLACE TRIGGER task_admission_final
  BEFORE UPDATE OF {", ".join(facts)} ON tasks_app_task
  FOR EACH ROW EXECUTE FUNCTION tasks_app_refuse_change();
"""


def append_only_sql(tables: Sequence[str] = FIRST_APPEND_ONLY) -> tuple[str, str]:
    """Return SQL of the triggers that keep histories as they were written."""
    add = [
        f"CREATE TRIGGER {table}_final BEFORE UPDATE ON {table} "
        "FOR EACH ROW EXECUTE FUNCTION tasks_app_refuse_change();"
        for table in tables
    ]
    drop = [f"DROP TRIGGER {table}_final ON {table};" for table in tables]
    return "\n".join(add), "\n".join(drop)


def pruning_sql() -> tuple[str, str]:
    """Return SQL of the trigger by which the processes' roles remove no checkpoint but an old one.

    Old is what has no name and is not among the newest (E53); the owner of the table may purge.
    """
    named = ", ".join(f"'{reason}'" for reason in NAMED_REASONS)
    roles = ", ".join(f"'{role}'" for role in RUNTIME_ROLES)
    return (
        f"""
CREATE OR REPLACE FUNCTION tasks_app_keep_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.reason IN ({named}) OR OLD.seq > {-KEEP_NEWEST} +
      (SELECT t.checkpoint_seq FROM tasks_app_task t WHERE t.id = OLD.task_id)
  THEN
    RAISE EXCEPTION 'checkpoint % of task % is kept', OLD.seq, OLD.task_id
      USING ERRCODE = 'check_violation', CONSTRAINT = 'checkpoint_kept';
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER tasks_app_checkpoint_kept BEFORE DELETE ON tasks_app_checkpoint
  FOR EACH ROW WHEN (current_user IN ({roles})) EXECUTE FUNCTION tasks_app_keep_checkpoint();
""",
        """
DROP TRIGGER tasks_app_checkpoint_kept ON tasks_app_checkpoint;
DROP FUNCTION tasks_app_keep_checkpoint();
""",
    )


def storage_sql() -> tuple[str, str]:
    """Return SQL that leaves room for heap-only updates of the rows that heartbeats write."""
    return (
        "ALTER TABLE tasks_app_task SET (fillfactor = 80);"
        "ALTER TABLE tasks_app_step SET (fillfactor = 85);",
        "ALTER TABLE tasks_app_task RESET (fillfactor);"
        "ALTER TABLE tasks_app_step RESET (fillfactor);",
    )
