"""Checkpoints of a task."""

import json
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet

from tasks_app.domain.checkpoint import CheckpointDocument, parse
from tasks_app.domain.errors import CorruptCheckpointError
from tasks_app.domain.principal import Principal
from tasks_app.models import Checkpoint, Event
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import MAX_PAGE_SIZE, PAGE_SIZE, Page
from tasks_app.queries.rows import row_of
from tasks_app.queries.tasks import require_visible


@dataclass(frozen=True, slots=True)
class CheckpointFilters(Filters):
    """What a list of checkpoints is narrowed to."""

    reason: tuple[str, ...] = ()
    plan_version: int | None = None

    LOOKUPS: ClassVar = {
        "reason": "reason__in",
        "plan_version": "plan_version",
    }
    ORDERS: ClassVar = {
        "-seq": ("-seq",),
        "seq": ("seq",),
    }


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint; `text` is the stored form of its document."""

    seq: int
    schema_version: int
    plan_version: int
    next_step: str
    reason: str
    fence: int
    sha256: str
    text: str
    created_at: datetime

    @property
    def verified(self) -> bool:
        """Tell whether the text still has its stored digest."""
        return sha256(self.text.encode()).hexdigest() == self.sha256

    @property
    def size_bytes(self) -> int:
        """Return how long the text is."""
        return len(self.text.encode())

    @property
    def document(self) -> Any:
        """Return the document for reading; damaged text stays text."""
        try:
            return json.loads(self.text)
        except ValueError:
            return self.text


def list_checkpoints(
    principal: Principal,
    task_id: UUID,
    filters: CheckpointFilters = CheckpointFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[CheckpointRow]:
    """Return the checkpoints of a task, newest first by default; raises NotFoundError."""
    require_visible(principal, task_id)
    rows = filters.narrow(_rows(principal, task_id))
    pages = filters.keyset(principal, "checkpoints", task_id)
    return pages.page(rows, cursor, limit, checkpoint_row)


def list_newest_checkpoints(
    principal: Principal, task_id: UUID, limit: int = 20
) -> list[CheckpointRow]:
    """Return the newest checkpoints of a task."""
    return [checkpoint_row(row) for row in _rows(principal, task_id).order_by("-seq")[:limit]]


def list_checkpoint_times(principal: Principal, task_id: UUID) -> list[datetime]:
    """Return when the newest checkpoints were written; the journal knows of pruned ones, too."""
    told = Event.objects.visible_to(principal).filter(task_id=task_id, type="checkpoint")
    return list(told.order_by("-seq").values_list("at", flat=True)[:MAX_PAGE_SIZE])


def verified(row: Checkpoint) -> CheckpointDocument:
    """Return a stored checkpoint's document after checking that it is what was written.

    Raises:
        CorruptCheckpointError: checksum, schema or owner do not fit.
    """
    document = parse(row.document, row.sha256)
    if document.task_id != str(row.task_id) or document.checkpoint_seq != row.seq:
        raise CorruptCheckpointError("The checkpoint belongs elsewhere.", seq=row.seq)
    return document


def checkpoint_row(row: Checkpoint) -> CheckpointRow:
    """Return a stored checkpoint as others see it."""
    return row_of(CheckpointRow, row, text=row.document)


def _rows(principal: Principal, task_id: UUID) -> QuerySet[Checkpoint]:
    rows: QuerySet[Checkpoint] = Checkpoint.objects.visible_to(principal)
    return rows.filter(task_id=task_id)
