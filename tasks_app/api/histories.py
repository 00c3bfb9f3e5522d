"""What one task left behind: steps, checkpoints, effects, artifacts, journal, audit."""

from collections.abc import Mapping
from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.api.base import Input, PageQuery
from tasks_app.api.documented import documented
from tasks_app.api.inputs import JournalQuery
from tasks_app.api.records import (
    ArtifactOut,
    ArtifactPage,
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
from tasks_app.queries.steps import list_steps


class HistoryView(TaskObjectView):
    """One list of what a task left behind."""

    capabilities: ClassVar[Mapping[str, str | tuple[str, ...]]] = {"GET": "tasks:read"}
    query_models: ClassVar[Mapping[str, type[Input]]] = {"GET": PageQuery}


class StepListView(HistoryView):
    """The plan's steps."""

    @documented(
        "listSteps", "List a task's steps", capability="tasks:read", query=PageQuery,
        returns=StepPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the steps of all plans; retired ones say so."""
        return self.page(StepOut, list_steps, task_id)


class PlanListView(HistoryView):
    """How the plan changed."""

    @documented(
        "listPlans", "List a task's plans", capability="tasks:read", query=PageQuery,
        returns=PlanPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the plans, newest first; the list is empty while the first one stands."""
        return self.page(PlanOut, list_plans, task_id)


class CheckpointListView(HistoryView):
    """From where the task can be continued."""

    @documented(
        "listCheckpoints", "List a task's checkpoints", capability="tasks:read", query=PageQuery,
        returns=CheckpointPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the checkpoints, newest first."""
        return self.page(CheckpointOut, list_checkpoints, task_id)


class EffectListView(HistoryView):
    """What the task did outside."""

    capabilities: ClassVar = {"GET": "ledger:read"}

    @documented(
        "listEffects", "List a task's effects", capability="ledger:read", query=PageQuery,
        returns=EffectPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the acts on the outside world, oldest first."""
        return self.page(EffectOut, list_effects, task_id)


class ArtifactListView(HistoryView):
    """What the task produced."""

    capabilities: ClassVar = {"GET": "artifacts:read"}

    @documented(
        "listArtifacts", "List a task's artifacts", capability="artifacts:read", query=PageQuery,
        returns=ArtifactPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the outputs, oldest first."""
        return self.page(ArtifactOut, list_artifacts, task_id)


class JournalView(HistoryView):
    """What happened, in order."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": JournalQuery}

    @documented(
        "listEvents", "Read a task's journal", capability="tasks:read", query=JournalQuery,
        returns=EventPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the events after a sequence number; the present state is in the snapshot."""
        after = self.query_as(JournalQuery).after
        return self.page(EventOut, list_events, task_id, after=after)


class AuditView(HistoryView):
    """Who decided what about the task, hash-linked."""

    @documented(
        "listAudit", "Read a task's audit stream", capability="tasks:read", query=PageQuery,
        returns=AuditPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the entries in order."""
        return self.page(AuditOut, list_audit, task_id)
