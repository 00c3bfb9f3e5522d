"""What one task left behind: steps, checkpoints, effects, artifacts, journal, audit."""

from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.api.base import PageQuery
from tasks_app.api.documented import documented
from tasks_app.api.files import artifact_out
from tasks_app.api.inputs import JournalQuery
from tasks_app.api.outputs import (
    ArtifactPage,
    AuditOut,
    AuditPage,
    CheckpointOut,
    CheckpointPage,
    EffectOut,
    EffectPage,
    EventOut,
    EventPage,
    StepOut,
    StepPage,
)
from tasks_app.api.tasks import TaskObjectView
from tasks_app.queries import records


class StepListView(TaskObjectView):
    """The plan's steps."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": PageQuery}

    @documented(
        "listSteps", "List a task's steps", capability="tasks:read", query=PageQuery,
        returns=StepPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the steps of all plans; retired ones say so."""
        query = self.query_as(PageQuery)
        with self.query_faults():
            found = records.list_steps(self.principal, task_id, query.cursor, query.limit)
        return self.page(found, StepOut.model_validate)


class CheckpointListView(TaskObjectView):
    """From where the task can be continued."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": PageQuery}

    @documented(
        "listCheckpoints", "List a task's checkpoints", capability="tasks:read", query=PageQuery,
        returns=CheckpointPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the checkpoints, newest first."""
        query = self.query_as(PageQuery)
        with self.query_faults():
            found = records.list_checkpoints(self.principal, task_id, query.cursor, query.limit)
        return self.page(found, CheckpointOut.model_validate)


class EffectListView(TaskObjectView):
    """What the task did outside."""

    capabilities: ClassVar = {"GET": "ledger:read"}
    query_models: ClassVar = {"GET": PageQuery}

    @documented(
        "listEffects", "List a task's effects", capability="ledger:read", query=PageQuery,
        returns=EffectPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the acts on the outside world, oldest first."""
        query = self.query_as(PageQuery)
        with self.query_faults():
            found = records.list_effects(self.principal, task_id, query.cursor, query.limit)
        return self.page(found, EffectOut.model_validate)


class ArtifactListView(TaskObjectView):
    """What the task produced."""

    capabilities: ClassVar = {"GET": "artifacts:read"}
    query_models: ClassVar = {"GET": PageQuery}

    @documented(
        "listArtifacts", "List a task's artifacts", capability="artifacts:read", query=PageQuery,
        returns=ArtifactPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the outputs, oldest first."""
        query = self.query_as(PageQuery)
        with self.query_faults():
            found = records.list_artifacts(self.principal, task_id, query.cursor, query.limit)
        return self.page(found, artifact_out)


class JournalView(TaskObjectView):
    """What happened, in order."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": JournalQuery}

    @documented(
        "listEvents", "Read a task's journal", capability="tasks:read", query=JournalQuery,
        returns=EventPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the events after a sequence number; the present state is in the snapshot."""
        query = self.query_as(JournalQuery)
        with self.query_faults():
            found = records.list_events(
                self.principal, task_id, query.cursor, query.limit, after=query.after
            )
        return self.page(found, EventOut.model_validate)


class AuditView(TaskObjectView):
    """Who decided what about the task, hash-linked."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": PageQuery}

    @documented(
        "listAudit", "Read a task's audit stream", capability="tasks:read", query=PageQuery,
        returns=AuditPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return the entries in order."""
        query = self.query_as(PageQuery)
        with self.query_faults():
            found = records.list_audit(self.principal, task_id, query.cursor, query.limit)
        return self.page(found, AuditOut.model_validate)
