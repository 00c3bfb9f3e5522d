"""Steering: tell a live task something, and read what it was told."""

import uuid
from typing import ClassVar
from uuid import UUID

from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.admission.commands import preview_command, submit_command
from tasks_app.admission.idempotency import HEADER, clean_key
from tasks_app.api.base import REPLAYED, answer
from tasks_app.api.documented import documented
from tasks_app.api.inputs import CommandInput
from tasks_app.api.lists import CommandListQuery
from tasks_app.api.outputs import CommandAccepted, CommandOut, CommandPage, PlanPreviewOut
from tasks_app.api.tasks import TaskObjectView
from tasks_app.domain.principal import Principal
from tasks_app.queries.commands import list_commands


class CommandListView(TaskObjectView):
    """The commands of one task."""

    capabilities: ClassVar = {"GET": "tasks:read", "POST": ("tasks:steer", "tasks:cancel")}
    query_models: ClassVar = {"GET": CommandListQuery}

    @documented(
        "listCommands",
        "List a task's commands",
        capability="tasks:read",
        query=CommandListQuery,
        returns=CommandPage,
    )
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return what the task was told, newest first."""
        return self.page(CommandOut, list_commands, task_id)

    @documented(
        "steerTask",
        "Pause, resume, cancel or change a task",
        capability="tasks:steer (tasks:cancel for type cancel)",
        body=CommandInput,
        returns=CommandAccepted,
        status=202,
        replays=True,
        previews=PlanPreviewOut,
        codes=(
            "version_required",
            "version_conflict",
            "task_terminal",
            "task_closing",
            "task_dead_lettered",
            "no_open_question",
            "schema_mismatch",
            "command_not_applicable",
            "unknown_workflow",
            "workflow_failed",
        ),
        example={
            "type": "adjust_goal",
            "payload": {"exclude": ["drafts/*"]},
            "expectedVersion": 4,
            "reason": "Drafts are not part of the review.",
        },
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        """Store a command; it is applied at the task's next safe point.

        With `dryRun` an adjust_goal is only looked at: the answer tells the merged goal and what
        the plan would keep, add and retire, and nothing is changed.
        """
        body = self.body(CommandInput)
        if body.dry_run:
            return self._preview(task_id, body)
        key = clean_key(request.headers.get(HEADER))
        submitted = submit_command(
            self.principal,
            task_id=task_id,
            command_id=body.command_id or command_id_of(self.principal, task_id, key),
            type=body.type,
            payload=body.payload,
            expected_version=body.expected_version,
            reason=body.reason,
            source="rest",
            request_id=self.request_id,
        )
        headers = {"Location": reverse("runtime:commands", args=[task_id]), "Retry-After": "2"}
        if submitted.replayed:
            headers[REPLAYED] = "true"
        return answer(CommandAccepted.of(submitted, task_id=task_id), status=202, headers=headers)

    def _preview(self, task_id: UUID, body: CommandInput) -> Response:
        found = preview_command(
            self.principal,
            task_id=task_id,
            type=body.type,
            payload=body.payload,
            expected_version=body.expected_version,
            reason=body.reason,
        )
        shown = PlanPreviewOut.of(found, task_id=task_id, state_version=body.expected_version)
        return answer(shown)


def command_id_of(principal: Principal, task_id: UUID, key: str | None) -> UUID:
    """Return the id that a client's Idempotency-Key stands for, or a new one without a key."""
    if key is None:
        return uuid.uuid4()
    return uuid.uuid5(task_id, f"{principal.actor}:{key}")
