"""One command for many tasks: named one by one, or chosen by a filter."""

from typing import Any, ClassVar, Literal
from uuid import UUID

from pydantic import Field, model_validator
from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.admission import bulk
from tasks_app.admission.bulk import Choice, Order, Refused, Target
from tasks_app.admission.commands import Submitted
from tasks_app.admission.idempotency import HEADER, clean_key
from tasks_app.api.base import REPLAYED, Input, Output, RuntimeView, answer
from tasks_app.api.documented import documented
from tasks_app.api.inputs import ExpectedVersion, Moment, Reason, Text, WholeNumber
from tasks_app.domain.repairs import BULK_MAX
from tasks_app.domain.states import TaskStatus
from tasks_app.queries.tasks import TaskFilters


class TargetInput(Input):
    """One task of many, at the version that the caller saw."""

    task_id: UUID
    expected_version: ExpectedVersion = None
    title: Text | None = Field(None, max_length=200, description="Of the preview; not read.")


class SelectInput(Input):
    """Tasks by what they are, as in the list of tasks; ended ones only if `status` names them."""

    q: Text = Field("", max_length=200)
    status: list[TaskStatus] = Field(default_factory=list, max_length=20)
    workflow: Text = Field("", max_length=100)
    priority: list[WholeNumber] = Field(default_factory=list, max_length=10)
    thread_id: UUID | None = None
    parent_id: UUID | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    cursor: Text | None = Field(
        None, max_length=1000, description="`nextCursor` of the answer before."
    )

    def filters(self) -> TaskFilters:
        """Return what the tasks are narrowed to."""
        given = self.model_dump(exclude={"status", "cursor", "priority"})
        states = tuple(sorted({status.value for status in self.status}))
        return TaskFilters(**given, states=states, priority=tuple(sorted(set(self.priority))))


class CommandManyInput(Input):
    """One command for many tasks: `tasks` or `select`, not both."""

    type: Literal["pause", "resume", "cancel", "set_priority"]
    payload: dict[str, Any] = Field(
        default_factory=dict, description="As for one task: `priority` of set_priority."
    )
    reason: Reason
    dry_run: bool = Field(False, strict=True, description="Change nothing; answer what would be.")
    tasks: list[TargetInput] | None = Field(None, min_length=1, max_length=BULK_MAX)
    select: SelectInput | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "CommandManyInput":
        if (self.tasks is None) == (self.select is None):
            raise ValueError("Name the tasks, or select them.")
        return self


class CommandDone(Output):
    """One task that was told; `status` is the command's, `stateVersion` the task's after it."""

    task_id: UUID
    command_id: UUID
    status: str
    state_version: int
    replayed: bool


class CommandRefused(Output):
    """One task that was not, or would not be, told; nothing of it was changed."""

    task_id: UUID
    code: str
    detail: str
    current_version: int | None = Field(description="Where the version was stale.")


class CommandReady(Output):
    """One task that a preview would tell, as it can be sent back."""

    task_id: UUID
    expected_version: int | None
    title: str


class CommandManyOut(Output):
    """What became of each task; of a preview: what would, with `tasks` to send back."""

    done: list[CommandDone]
    refused: list[CommandRefused]
    tasks: list[CommandReady] = Field(description="Only of a preview.")
    next_cursor: str | None = Field(description="Where `select` leaves more tasks.")


class CommandManyView(RuntimeView):
    """The same command for many tasks."""

    capabilities: ClassVar = {"POST": ("tasks:steer", "tasks:cancel")}

    @documented(
        "steerTasks",
        "Pause, resume, cancel or reprioritise many tasks",
        capability="tasks:steer (tasks:cancel for type cancel)",
        body=CommandManyInput,
        returns=CommandManyOut,
        keeps=True,
        example={
            "type": "pause",
            "select": {"workflow": "contracts.review", "status": ["queued", "working"]},
            "reason": "The archive is being moved.",
            "dryRun": True,
        },
    )
    def post(self, request: Request) -> Response:
        """Tell up to 500 named tasks, or up to 200 that `select` finds, each by itself.

        A task that cannot be told is refused with the code it would have alone; the others are
        told. With an Idempotency-Key a repeat means the tasks of the first time and tells each once.
        """
        body = self.body(CommandManyInput)
        order = Order(body.type, body.payload, body.reason)
        if body.dry_run:
            return answer(self._preview(order, self._choice(body)))
        key = clean_key(request.headers.get(HEADER))
        asked = {"route": request.path, "body": request.data}
        choice, bulk_id, replayed = bulk.choose_once(
            self.principal, order, key=key, request=asked, choose=lambda: self._choice(body)
        )
        outcomes = bulk.steer_tasks(
            self.principal,
            order,
            choice.targets,
            bulk_id=bulk_id,
            source="rest",
            request_id=self.request_id,
        )
        told = [
            CommandDone.of(one, task_id=target.task_id)
            for target, one in zip(choice.targets, outcomes, strict=True)
            if isinstance(one, Submitted)
        ]
        refused = [_refused(one) for one in outcomes if isinstance(one, Refused)]
        out = CommandManyOut(done=told, refused=refused, tasks=[], next_cursor=choice.next_cursor)
        return answer(out, headers={REPLAYED: "true"} if replayed else {})

    def _choice(self, body: CommandManyInput) -> Choice:
        if body.select is not None:
            return bulk.choose_tasks(self.principal, body.select.filters(), body.select.cursor)
        named = body.tasks or []
        return Choice(tuple(Target(one.task_id, one.expected_version) for one in named))

    def _preview(self, order: Order, choice: Choice) -> CommandManyOut:
        found = bulk.preview_tasks(self.principal, order, choice.targets)
        return CommandManyOut(
            done=[],
            refused=[_refused(one) for one in found if isinstance(one, Refused)],
            tasks=[CommandReady.of(one) for one in found if isinstance(one, Target)],
            next_cursor=choice.next_cursor,
        )


def _refused(one: Refused) -> CommandRefused:
    version = one.fault.fields.get("currentVersion")
    return CommandRefused(
        task_id=one.task_id,
        code=one.fault.code,
        detail=one.fault.message,
        current_version=version if isinstance(version, int) else None,
    )
