"""What one task left behind: steps, slices, checkpoints, effects, artifacts, journal, audit."""

from collections.abc import Mapping
from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.api.documented import documented
from tasks_app.api.lists import (
    ArtifactListQuery,
    AttemptListQuery,
    AuditListQuery,
    CheckpointListQuery,
    EffectListQuery,
    JournalQuery,
    PlanListQuery,
    SliceListQuery,
    StepListQuery,
)
from tasks_app.api.records import (
    ArtifactOut,
    ArtifactPage,
    AttemptOut,
    AttemptPage,
    AuditOut,
    AuditPage,
    CheckpointOut,
    CheckpointPage,
    EffectOut,
    EffectPage,
    EventOut,
    EventPage,
    PlanOut,
    PlanPage,
    SliceOut,
    SlicePage,
    StepOut,
    StepPage,
)
from tasks_app.api.tasks import TaskObjectView
from tasks_app.queries.artifacts import list_artifacts
from tasks_app.queries.audit import list_audit
from tasks_app.queries.checkpoints import list_checkpoints
from tasks_app.queries.effects import list_effects
from tasks_app.queries.events import list_events
from tasks_app.queries.plans import list_plans
from tasks_app.queries.slices import list_attempts, list_slices
from tasks_app.queries.steps import list_steps


class HistoryView(TaskObjectView):
    """One list of what a task left behind."""

    capabilities: ClassVar[Mapping[str, str | tuple[str, ...]]] = {"GET": "tasks:read"}


class StepListView(HistoryView):
    """The plan's steps."""

    query_models: ClassVar = {"GET": StepListQuery}

    @documented(
        "listSteps", "List a task's steps", capability="tasks:read", query=StepListQuery,
        returns=StepPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the steps of all plans; retired ones say so."""
        return self.page(StepOut, list_steps, task_id)


class PlanListView(HistoryView):
    """How the plan changed."""

    query_models: ClassVar = {"GET": PlanListQuery}

    @documented(
        "listPlans", "List a task's plans", capability="tasks:read", query=PlanListQuery,
        returns=PlanPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the plans, newest first; the list is empty while the first one stands."""
        return self.page(PlanOut, list_plans, task_id)


class SliceListView(HistoryView):
    """Who executed the task, one row for each claim."""

    query_models: ClassVar = {"GET": SliceListQuery}

    @documented(
        "listSlices", "List a task's slices", capability="tasks:read", query=SliceListQuery,
        returns=SlicePage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return what each delivery executed, newest first by default."""
        return self.page(SliceOut, list_slices, task_id)


class AttemptListView(HistoryView):
    """What did not succeed at once."""

    query_models: ClassVar = {"GET": AttemptListQuery}

    @documented(
        "listAttempts", "List a task's failed tries", capability="tasks:read",
        query=AttemptListQuery, returns=AttemptPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the tries of steps that failed, newest first by default."""
        return self.page(AttemptOut, list_attempts, task_id)


class CheckpointListView(HistoryView):
    """From where the task can be continued."""

    query_models: ClassVar = {"GET": CheckpointListQuery}

    @documented(
        "listCheckpoints", "List a task's checkpoints", capability="tasks:read", query=CheckpointListQuery,
        returns=CheckpointPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the checkpoints, newest first."""
        return self.page(CheckpointOut, list_checkpoints, task_id)


class EffectListView(HistoryView):
    """What the task did outside."""

    capabilities: ClassVar = {"GET": "ledger:read"}

    query_models: ClassVar = {"GET": EffectListQuery}

    @documented(
        "listEffects", "List a task's effects", capability="ledger:read", query=EffectListQuery,
        returns=EffectPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the acts on the outside world, oldest first."""
        return self.page(EffectOut, list_effects, task_id)


class ArtifactListView(HistoryView):
    """What the task produced."""

    capabilities: ClassVar = {"GET": "artifacts:read"}

    query_models: ClassVar = {"GET": ArtifactListQuery}

    @documented(
        "listArtifacts", "List a task's artifacts", capability="artifacts:read", query=ArtifactListQuery,
        returns=ArtifactPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the outputs, oldest first."""
        return self.page(ArtifactOut, list_artifacts, task_id)


class JournalView(HistoryView):
    """What happened, in order."""

    query_models: ClassVar = {"GET": JournalQuery}

    @documented(
        "listEvents", "Read a task's journal", capability="tasks:read", query=JournalQuery,
        returns=EventPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return what happened, in order by default; the present state is in the snapshot."""
        return self.page(EventOut, list_events, task_id)


class AuditView(HistoryView):
    """Who decided what about the task, hash-linked."""

    query_models: ClassVar = {"GET": AuditListQuery}

    @documented(
        "listAudit", "Read a task's audit stream", capability="tasks:read", query=AuditListQuery,
        returns=AuditPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the entries in order."""
        return self.page(AuditOut, list_audit, task_id)
