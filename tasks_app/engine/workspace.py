"""The files of a task's thread: those it began with, and what it has stored since.

A file is an artifact under its name; the newest one of a name counts. Nothing is copied: bytes lie
in the artifact store, and the files that a run began with are a part of the state it began with.
"""

from collections.abc import Iterable
from uuid import UUID

from tasks_app.domain.workspace import FileFact, Files, covers, is_file
from tasks_app.models import Artifact, Run
from tasks_app.workflows.values import ArtifactRef, NotDeliverableError


def files_before(run: Run | None) -> Files:
    """Return what was there when a run began; nothing for a task without a thread."""
    found: Files = run.base_state.workspace if run is not None and run.base_state else {}
    return found


def files_after(run: Run) -> Files:
    """Return the files of the thread with what a run has stored."""
    return {**files_before(run), **stored(run.tenant_id, run.task_id)}


def seen_by(tenant_id: UUID, task_id: UUID) -> dict[str, FileFact]:
    """Return the files that a task can hand over now."""
    runs = Run.objects.for_tenant(tenant_id).select_related("base_state")
    before = files_before(runs.filter(pk=task_id).first())
    return {**before, **stored(tenant_id, task_id)}


def stored(tenant_id: UUID, task_id: UUID) -> dict[str, FileFact]:
    """Return what a task has stored itself."""
    rows = Artifact.objects.for_tenant(tenant_id).filter(task_id=task_id)
    return files_of(rows.order_by("created_at", "id"))


def files_of(rows: Iterable[Artifact]) -> dict[str, FileFact]:
    """Return the files that artifacts are, given oldest first."""
    return {row.name: fact_of(row) for row in rows if is_file(row.name)}


def fact_of(stored: Artifact | ArtifactRef) -> FileFact:
    """Return what is kept of one file."""
    return {
        "sha256": stored.sha256,
        "size_bytes": stored.size_bytes,
        "media_type": stored.media_type,
    }


def find(files: Files, paths: Iterable[str]) -> dict[str, FileFact]:
    """Return the files that paths name, each itself or as the folder that it lies in.

    Raises: NotDeliverableError for a path that names nothing, or an empty file.
    """
    found: dict[str, FileFact] = {}
    for path in paths:
        named = {name: fact for name, fact in files.items() if covers(path, name)}
        if not named:
            raise NotDeliverableError(path, "is no file or folder of the workspace")
        if not any(fact["size_bytes"] for fact in named.values()):
            raise NotDeliverableError(path, "is empty")
        found |= {name: fact for name, fact in named.items() if fact["size_bytes"]}
    return found
