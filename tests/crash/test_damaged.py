"""Somebody changes a checkpoint by hand: the task stops and nothing is executed."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from ledger_app.domain.canonical import canonical_text
from tasks_app.domain.checkpoint import digest
from tasks_app.models import Checkpoint
from tests.crash.bed import Bed
from tests.support import evidence, oracles

pytestmark = pytest.mark.crash


def newest(bed: Bed, task_id: UUID) -> Checkpoint:
    rows = Checkpoint.objects.for_tenant(bed.tenant.id).filter(task_id=task_id)
    row = rows.order_by("seq").last()
    assert row is not None
    return row


def edited(row: Checkpoint, **changes: Any) -> str:
    return canonical_text({**json.loads(row.document), **changes})


def skipping_ahead(row: Checkpoint, other: Checkpoint) -> tuple[str, str]:
    """The text says that the act is done already; the checksum was left alone."""
    return edited(row, next_position=3), row.sha256


def another_checksum(row: Checkpoint, other: Checkpoint) -> tuple[str, str]:
    """The checksum was changed."""
    return row.document, digest("another")


def of_another_task(row: Checkpoint, other: Checkpoint) -> tuple[str, str]:
    """A whole, valid checkpoint of another task."""
    return other.document, other.sha256


def from_the_future(row: Checkpoint, other: Checkpoint) -> tuple[str, str]:
    """A schema that this installation does not know, with the right checksum."""
    text = edited(row, schema_version=99)
    return text, digest(text)


def no_document(row: Checkpoint, other: Checkpoint) -> tuple[str, str]:
    """Text that is no document, with the right checksum."""
    return "[]", digest("[]")


DAMAGES = [skipping_ahead, another_checksum, of_another_task, from_the_future, no_document]


def overwrite(row: Checkpoint, document: str, sha256: str) -> None:
    """Do what the schema's triggers refuse to everybody but the table's owner."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tasks_app_checkpoint DISABLE TRIGGER USER")
        cursor.execute(
            "UPDATE tasks_app_checkpoint SET document = %s, sha256 = %s WHERE id = %s",
            [document, sha256, row.pk],
        )
        cursor.execute("ALTER TABLE tasks_app_checkpoint ENABLE TRIGGER USER")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_checkpoint_is_not_executed(
    bed: Bed, damage: Callable[[Checkpoint, Checkpoint], tuple[str, str]]
) -> None:
    """The task goes to a person with the reason; a person can cancel it (E60)."""
    question = {"op": "interrupt", "value": "go on?"}
    script = [bed.say(impure=True), question, bed.effect("act"), bed.say()]
    task_id, other_id = bed.submit(*script), bed.submit(*script)
    assert bed.wait_rest(task_id).status == "input_required"
    assert bed.wait_rest(other_id).status == "input_required"
    row = newest(bed, task_id)
    overwrite(row, *damage(row, newest(bed, other_id)))
    runs = bed.progress(task_id).runs
    bed.steer(task_id, "provide_input", answer={})
    task = bed.wait_rest(task_id)
    assert (task.status, task.error["code"]) == ("dead_lettered", "checkpoint_damaged")
    assert bed.progress(task_id).runs == runs
    assert bed.outside.counts(str(task_id)) == {}
    assert bed.steer(task_id, "cancel").status == "applied"
    assert bed.task(task_id).status == "cancelled"
    oracles.check_audit(evidence.of(bed.task(task_id)))
    oracles.check_ended(evidence.of(bed.task(task_id)))
    bed.steer(other_id, "provide_input", answer={})
    bed.check_completed(other_id, effects=1)
