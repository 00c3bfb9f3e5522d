"""What a run changed in the files of its thread: its artifacts against those it began with."""

from collections.abc import Mapping
from dataclasses import dataclass

from tasks_app.domain.principal import Principal
from tasks_app.domain.workspace import FileFact, changes, is_file, is_output
from tasks_app.models import Artifact, ThreadState
from tasks_app.queries.runs import RunHead


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file; `change` is created or modified, `is_output` tells that it is for people."""

    path: str
    change: str
    is_output: bool
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class WorkspaceChanges:
    """Files in the order of their paths."""

    files: tuple[FileChange, ...]


def workspace_changes(principal: Principal, run: RunHead) -> WorkspaceChanges | None:
    """Return what a run changed up to now; None while it waits for its turn."""
    if run.is_waiting:
        return None
    # Who sees the run sees which files it has, as its journal tells of them; not their bytes.
    rows = Artifact.objects.for_tenant(run.tenant_id).filter(task_id=run.task_id)
    found = rows.order_by("created_at", "id").values("name", "sha256", "size_bytes", "media_type")
    after: dict[str, FileFact] = {row.pop("name"): row for row in found if is_file(row["name"])}
    changed = changes(_before(principal, run), after)
    return WorkspaceChanges(
        tuple(
            FileChange(
                path, change, is_output(path), after[path]["size_bytes"], after[path]["sha256"]
            )
            for path, change in changed.items()
        )
    )


def _before(principal: Principal, run: RunHead) -> Mapping[str, FileFact]:
    states = ThreadState.objects.visible_to(principal).filter(pk=run.base_state_id)
    found: Mapping[str, FileFact] | None = states.values_list("workspace", flat=True).first()
    return found or {}
