"""Outputs of a task; their bytes are the artifact store's."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.models import Artifact
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import MAX_PAGE_SIZE, PAGE_SIZE, Page
from tasks_app.queries.rows import row_of
from tasks_app.queries.tasks import require_visible


@dataclass(frozen=True, slots=True)
class ArtifactFilters(Filters):
    """What a list of outputs is narrowed to; `q` is part of the name."""

    q: str = ""
    step_key: str = ""
    media_type: str = ""
    presented: bool | None = None

    LOOKUPS: ClassVar = {
        "q": "name__icontains",
        "step_key": "step_key",
        "media_type": "media_type",
        "presented": "presented",
    }
    ORDERS: ClassVar = {
        "created": ("created_at", "id"),
        "-created": ("-created_at", "-id"),
        "name": ("name", "id"),
        "-size": ("-size_bytes", "-id"),
    }


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """One stored output."""

    id: UUID
    tenant_id: UUID
    task_id: UUID
    name: str
    step_key: str
    media_type: str
    size_bytes: int
    sha256: str
    presented: bool
    created_at: datetime


def list_artifacts(
    principal: Principal,
    task_id: UUID,
    filters: ArtifactFilters = ArtifactFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[ArtifactRow]:
    """Return the outputs of a task, oldest first by default; raises NotFoundError."""
    require_visible(principal, task_id)
    rows = filters.narrow(Artifact.objects.visible_to(principal).filter(task_id=task_id))
    return filters.keyset(principal, "artifacts", task_id).page(rows, cursor, limit, _row)


def list_outputs(
    principal: Principal, task_id: UUID, *, presented_only: bool = False
) -> list[ArtifactRow]:
    """Return the outputs of a task, delivered ones first."""
    rows = Artifact.objects.visible_to(principal).filter(task_id=task_id)
    if presented_only:
        rows = rows.filter(presented=True)
    return [_row(row) for row in rows.order_by("-presented", "created_at")[:MAX_PAGE_SIZE]]


def get_artifact(principal: Principal, artifact_id: UUID) -> ArtifactRow:
    """Return one output.

    Raises:
        NotFoundError: no such artifact, or not the caller's to see.
    """
    row = Artifact.objects.visible_to(principal).filter(id=artifact_id).first()
    if row is None:
        raise NotFoundError("Not found.")
    return _row(row)


def _row(row: Artifact) -> ArtifactRow:
    return row_of(ArtifactRow, row)
