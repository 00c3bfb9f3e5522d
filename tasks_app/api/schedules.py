"""Schedules over REST: make, list, pause, resume, fire, delete."""

from typing import ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from tasks_app.admission import schedules
from tasks_app.admission.schedules import Plan
from tasks_app.api.base import RuntimeView, answer
from tasks_app.api.documented import documented
from tasks_app.api.inputs import ReasonInput, ScheduleInput
from tasks_app.api.lists import ScheduleListQuery
from tasks_app.api.outputs import FiredOut, ScheduleOut, SchedulePage
from tasks_app.domain.schedules import Overlap, Timing
from tasks_app.queries.schedules import get_schedule, list_schedules, schedule_row


class ScheduleListView(RuntimeView):
    """The schedules that the caller sees."""

    capabilities: ClassVar = {"GET": "tasks:read", "POST": "tasks:create"}
    query_models: ClassVar = {"GET": ScheduleListQuery}

    @documented("listSchedules", "List schedules", capability="tasks:read", query=ScheduleListQuery,
                returns=SchedulePage)  # fmt: skip
    def get(self, request: Request) -> Response:
        """Return schedules, newest first."""
        return self.page(ScheduleOut, list_schedules)

    @documented(
        "createSchedule",
        "Make a schedule",
        capability="tasks:create",
        body=ScheduleInput,
        returns=ScheduleOut,
        status=201,
        codes=("unknown_workflow", "workflow_failed", "name_taken"),
        example={
            "name": "every working day",
            "workflow": "contracts.review",
            "goal": {"folder": "/srv/contracts"},
            "cron": "0 7 * * MON-FRI",
            "timeZone": "Europe/Berlin",
        },
        keeps=True,
    )
    def post(self, request: Request) -> Response:
        """Start a workflow at times; its tasks are the caller's."""
        body = self.body(ScheduleInput)

        def act() -> Response:
            plan = Plan(
                name=body.name,
                workflow=body.workflow,
                goal=body.goal,
                timing=Timing(body.cron, body.interval_seconds, body.time_zone),
                title=body.title,
                priority=body.priority,
                budget=body.budget.model_dump(exclude_none=True) if body.budget else {},
                overlap=Overlap(body.overlap),
                catch_up_limit=body.catch_up_limit,
                jitter_seconds=body.jitter_seconds,
            )
            made = schedules.create_schedule(self.principal, plan, request_id=self.request_id)
            return answer(
                ScheduleOut.of(schedule_row(made)),
                status=201,
                headers={"Location": f"/runtime/schedules/{made.pk}"},
            )

        return self.once(act)


class _OneSchedule(RuntimeView):
    @override
    def look_up(self) -> None:
        get_schedule(self.principal, self.kwargs["schedule_id"])


class ScheduleView(_OneSchedule):
    """One schedule."""

    capabilities: ClassVar = {"GET": "tasks:read"}

    @documented("getSchedule", "Read a schedule", capability="tasks:read", returns=ScheduleOut)
    def get(self, request: Request, schedule_id: UUID) -> Response:
        """Return the schedule with what happened the last time."""
        return answer(ScheduleOut.of(get_schedule(self.principal, schedule_id)))


class SchedulePauseView(_OneSchedule):
    """A schedule's rest."""

    capabilities: ClassVar = {"POST": "tasks:steer"}

    @documented("pauseSchedule", "Pause a schedule", capability="tasks:steer", body=ReasonInput,
                returns=ScheduleOut, keeps=True)  # fmt: skip
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Start nothing until it is resumed; the times that pass are not made up for."""
        reason = self.body(ReasonInput).reason

        def act() -> Response:
            row = schedules.pause_schedule(
                self.principal, schedule_id=schedule_id, reason=reason, request_id=self.request_id
            )
            return answer(ScheduleOut.of(schedule_row(row)))

        return self.once(act)


class ScheduleResumeView(_OneSchedule):
    """A schedule's return."""

    capabilities: ClassVar = {"POST": "tasks:steer"}

    @documented("resumeSchedule", "Resume a schedule", capability="tasks:steer", body=ReasonInput,
                returns=ScheduleOut, keeps=True)  # fmt: skip
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Go on from now."""
        reason = self.body(ReasonInput).reason

        def act() -> Response:
            row = schedules.resume_schedule(
                self.principal, schedule_id=schedule_id, reason=reason, request_id=self.request_id
            )
            return answer(ScheduleOut.of(schedule_row(row)))

        return self.once(act)


class ScheduleFireView(_OneSchedule):
    """A firing by hand."""

    capabilities: ClassVar = {"POST": "tasks:create"}

    @documented("fireSchedule", "Fire a schedule now", capability="tasks:create", body=ReasonInput,
                returns=FiredOut, keeps=True,
                codes=("unknown_workflow", "workflow_failed", "budget_required",
                       "budget_insufficient"))  # fmt: skip
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """Start the task once; null when the overlap rule leaves it out."""
        self.body(ReasonInput)

        def act() -> Response:
            task_id = schedules.fire_now(
                self.principal, schedule_id=schedule_id, request_id=self.request_id
            )
            return answer(FiredOut(task_id=task_id))

        return self.once(act)


class ScheduleDeleteView(_OneSchedule):
    """The end of a schedule."""

    capabilities: ClassVar = {"POST": "tasks:cancel"}

    @documented("deleteSchedule", "Delete a schedule", capability="tasks:cancel", body=ReasonInput,
                returns=None, status=204, keeps=True)  # fmt: skip
    def post(self, request: Request, schedule_id: UUID) -> Response:
        """End it for good; tasks that it started stay and go on."""
        reason = self.body(ReasonInput).reason

        def act() -> Response:
            schedules.delete_schedule(
                self.principal, schedule_id=schedule_id, reason=reason, request_id=self.request_id
            )
            return Response(status=204)

        return self.once(act)
