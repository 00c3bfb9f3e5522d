"""What a task hands over when it ends: gathered from its rows, judged, and told."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger_app.services.receipts import DeliveredItem, EffectFact
from tasks_app.domain.workspace import Verdict, is_file, judge
from tasks_app.engine import workspace
from tasks_app.events.catalogue import DeliveryData
from tasks_app.models import Artifact, Run


@dataclass(frozen=True, slots=True)
class Handover:
    """What was handed over; `by_step` counts it by the step that did."""

    items: Sequence[DeliveredItem]
    verdict: Verdict
    by_step: Mapping[str, int]
    is_of_run: bool


def gather(tenant_id: UUID, task_id: UUID, *, in_thread: bool, has_artifacts: bool) -> Handover:
    """Return what a task hands over.

    Args:
        in_thread: False when it is known that the task has no thread.
        has_artifacts: False when it is known that there is none to be read.
    """
    run = _run(tenant_id, task_id) if in_thread else None
    artifacts = Artifact.objects.for_tenant(tenant_id).filter(task_id=task_id)
    rows = list(artifacts.order_by("created_at", "id")) if has_artifacts else []
    before, presented = workspace.files_before(run), [row for row in rows if row.presented]
    return Handover(
        items=_items(presented),
        verdict=judge(
            before,
            {**before, **workspace.files_of(rows)},
            {row.name for row in presented if row.size_bytes and is_file(row.name)},
            _wanted(run),
        ),
        by_step=Counter(row.step_key for row in presented),
        is_of_run=run is not None,
    )


def told(handed: Handover, outcome: str, acts: Sequence[EffectFact]) -> DeliveryData:
    """Return the receipt as the journal of a run tells it (R66)."""
    verdict = handed.verdict
    digests = {item["name"]: item["sha256"] for item in handed.items}
    return {
        "outcome": outcome,
        "presented": len(verdict.presented),
        "paths": list(verdict.presented),
        "byTool": dict(handed.by_step),
        "producedPaths": list(verdict.produced),
        "matchedPaths": list(verdict.matched),
        "satisfied": not verdict.problem,
        "sha256": {path: digests[path] for path in verdict.presented},
        "effects": [
            {"key": act["key"], "tool": act["tool"], "state": act["state"]} for act in acts
        ],
    }


def _run(tenant_id: UUID, task_id: UUID) -> Run | None:
    runs = Run.objects.for_tenant(tenant_id).select_related("base_state")
    found: Run | None = runs.filter(pk=task_id).first()
    return found


def _items(rows: Sequence[Artifact]) -> list[DeliveredItem]:
    """Return each content once under each name, in order; bytes that were presented again, too."""
    found = {(row.name, row.sha256): row for row in rows}
    return [
        {
            "name": row.name,
            "sha256": row.sha256,
            "size_bytes": row.size_bytes,
            "media_type": row.media_type,
        }
        for _, row in sorted(found.items())
    ]


def _wanted(run: Run | None) -> list[str]:
    """Return what the request of a run named to be handed over."""
    given: Any = run.request.get("input") if run is not None else None
    names = given.get("deliverables") if isinstance(given, dict) else None
    return [str(name) for name in names or ()]
