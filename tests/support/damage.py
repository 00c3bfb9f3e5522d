"""Does to checkpoints what the schema's triggers refuse to everybody but the tables' owner."""

from uuid import UUID

from django.db import connection, transaction


def damage_newest(task_id: UUID) -> int:
    """Change the text of a task's newest checkpoint under its checksum; return its number."""
    return _newest(
        task_id, "UPDATE tasks_app_checkpoint SET document = document || ' ' WHERE {newest}"
    )


def damage_all(task_id: UUID) -> None:
    """Change the text of every checkpoint of a task."""
    _newest(
        task_id, "UPDATE tasks_app_checkpoint SET document = document || ' ' WHERE task_id = %s"
    )


def remove_newest(task_id: UUID) -> int:
    """Remove a task's newest checkpoint; return its number."""
    return _newest(task_id, "DELETE FROM tasks_app_checkpoint WHERE {newest}")


_NEWEST = "task_id = %s AND seq = (SELECT max(seq) FROM tasks_app_checkpoint WHERE task_id = %s)"


def _newest(task_id: UUID, statement: str) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT max(seq) FROM tasks_app_checkpoint WHERE task_id = %s", [task_id])
        seq = int(cursor.fetchone()[0])
        cursor.execute("ALTER TABLE tasks_app_checkpoint DISABLE TRIGGER USER")
        sql = statement.format(newest=_NEWEST)
        cursor.execute(sql, [task_id] * sql.count("%s"))
        cursor.execute("ALTER TABLE tasks_app_checkpoint ENABLE TRIGGER USER")
    return seq
