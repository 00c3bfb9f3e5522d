"""Held tasks: which there are and why, and how they are repaired, one by one or many together."""

import uuid
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from django.urls import reverse
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.admission.idempotency import HEADER, clean_key
from tasks_app.admission.repairs import (
    Refused,
    Repaired,
    check_repairs,
    repair_task,
    repair_tasks,
)
from tasks_app.admission.replays import Kept, once
from tasks_app.api.base import REPLAYED, Output, RuntimeView, answer
from tasks_app.api.documented import documented
from tasks_app.api.inputs import RepairInput, RepairManyInput
from tasks_app.api.lists import HeldQuery, RepairListQuery
from tasks_app.api.outputs import ListPage, PersonOut, Redacted
from tasks_app.api.tasks import TaskObjectView
from tasks_app.domain.errors import FieldProblem, InvalidInputError
from tasks_app.domain.repairs import OBSTACLES, check_payload
from tasks_app.queries.holds import count_causes, list_candidates, list_held
from tasks_app.queries.repairs import list_repairs

_CODES = (
    "version_required",
    "version_conflict",
    "task_terminal",
    "task_not_held",
    "effect_in_doubt",
    "effect_not_in_doubt",
    "effect_not_repeatable",
    "checkpoint_damaged",
    "no_good_checkpoint",
    "deadline_passed",
    "initiator_revoked",
    "unknown_workflow",
    "repair_not_applicable",
)


class RepairOut(Output):
    """A repair and where it left the task."""

    repair_id: UUID
    task_id: UUID
    verb: str
    payload: Redacted
    cause: str
    reason: str
    requested_by: PersonOut
    source: str
    status: str
    old_version: int
    new_version: int
    forked_task_id: UUID | None
    created_at: datetime


class RepairPage(ListPage[RepairOut]):
    """Repairs, newest first."""


class RepairAccepted(Output):
    """A repair that was carried out; `status` and `stateVersion` are the task's after it."""

    repair_id: UUID
    task_id: UUID
    verb: str
    status: str
    state_version: int
    forked_task_id: UUID | None


class HeldItem(Output):
    """A held task in a list; `cause` is the code it is held for."""

    task_id: UUID
    title: str
    workflow: str
    cause: str
    message: str
    step: str
    since: datetime | None
    recoveries: int
    state_version: int
    initiator: str


class HeldPage(ListPage[HeldItem]):
    """Held tasks, the longest held first."""


class CauseOut(Output):
    """How many tasks are held for one cause, and since when the oldest is."""

    cause: str
    count: int
    oldest: datetime | None


class CauseList(Output):
    """The causes, the most frequent first."""

    items: list[CauseOut]


class RepairRefused(Output):
    """One task of many that was not, or would not be, repaired; nothing of it was changed."""

    task_id: UUID
    code: str
    detail: str


class RepairReady(Output):
    """One task that a preview would repair, as it has to be sent back."""

    task_id: UUID
    expected_version: int
    title: str


class RepairManyOut(Output):
    """What became of many repairs; of a preview: what would, with `tasks` to send back."""

    done: list[RepairAccepted]
    refused: list[RepairRefused]
    tasks: list[RepairReady] = Field(description="Only of a preview.")


class RepairListView(TaskObjectView):
    """The repairs of one task."""

    capabilities: ClassVar = {"GET": "tasks:read", "POST": "deadletters:manage"}
    query_models: ClassVar = {"GET": RepairListQuery}

    @documented(
        "listRepairs", "List a task's repairs", capability="tasks:read", query=RepairListQuery,
        returns=RepairPage,
    )  # fmt: skip
    def get(self, request: Request, task_id: UUID) -> Response:
        """Return what people did with the task while it was held, newest first."""
        return self.page(RepairOut, list_repairs, task_id)

    @documented(
        "repairTask",
        "Repair a held task",
        capability="deadletters:manage (and ledger:resolve for settle_effect)",
        body=RepairInput,
        returns=RepairAccepted,
        status=202,
        replays=True,
        codes=_CODES,
        example={
            "verb": "settle_effect",
            "payload": {"outcome": "done", "proof": "Invoice 4711 is in their portal."},
            "expectedVersion": 9,
            "reason": "Looked it up.",
        },
    )
    def post(self, request: Request, task_id: UUID) -> Response:
        """Continue from a checkpoint, settle an effect, requeue, fork or close a held task."""
        body = self.body(RepairInput)
        key = clean_key(request.headers.get(HEADER))
        repaired = repair_task(
            self.principal,
            task_id=task_id,
            repair_id=body.repair_id or self._id_of(task_id, key),
            verb=body.verb,
            payload=body.payload,
            expected_version=body.expected_version,
            reason=body.reason,
            source="rest",
            request_id=self.request_id,
        )
        address = reverse("runtime:task-repairs", args=[task_id])
        headers = {"Location": address, "Retry-After": "2"}
        if repaired.replayed:
            headers[REPLAYED] = "true"
        return answer(RepairAccepted.of(repaired), status=202, headers=headers)

    def _id_of(self, task_id: UUID, key: str | None) -> UUID:
        if key is None:
            return uuid.uuid4()
        return uuid.uuid5(task_id, f"repair:{self.principal.actor}:{key}")


class RepairManyView(RuntimeView):
    """The same repair of many tasks."""

    capabilities: ClassVar = {"POST": "deadletters:manage"}

    @documented(
        "repairTasks",
        "Repair many held tasks in one way",
        capability="deadletters:manage (and ledger:resolve for settle_effect)",
        body=RepairManyInput,
        returns=RepairManyOut,
        keeps=True,
        example={"verb": "requeue", "cause": "too_many_recoveries", "dryRun": True},
    )
    def post(self, request: Request) -> Response:
        """Preview, then repair each task in a transaction of its own.

        A preview (`dryRun` and `cause`) lists the tasks that the verb can apply to; send its
        `tasks` back to repair them. The answer says of each what became of it.
        """
        body = self.body(RepairManyInput)
        if body.dry_run:
            return answer(self._preview(body))
        bulk_id, replayed = self._bulk_id(body)
        out = self._repair(body, bulk_id)
        return answer(out, headers={REPLAYED: "true"} if replayed else {})

    def _preview(self, body: RepairManyInput) -> RepairManyOut:
        check_payload(body.verb, body.payload)
        if not body.cause:
            problem = FieldProblem("/cause", "required", "A preview needs the cause.")
            raise InvalidInputError(problem.detail, [problem])
        found = list_candidates(self.principal, body.cause, body.verb)
        return RepairManyOut(
            done=[],
            refused=[
                RepairRefused(task_id=item.row.task_id, code=item.code, detail=OBSTACLES[item.code])
                for item in found
                if item.code
            ],
            tasks=[
                RepairReady(
                    task_id=item.row.task_id,
                    expected_version=item.row.state_version,
                    title=item.row.title,
                )
                for item in found
                if not item.code
            ],
        )

    def _repair(self, body: RepairManyInput, bulk_id: UUID) -> RepairManyOut:
        outcomes = repair_tasks(
            self.principal,
            tasks=_targets(body),
            bulk_id=bulk_id,
            verb=body.verb,
            payload=body.payload,
            reason=body.reason,
            source="rest",
            request_id=self.request_id,
        )
        return RepairManyOut(
            done=[RepairAccepted.of(one) for one in outcomes if isinstance(one, Repaired)],
            refused=[
                RepairRefused(task_id=one.task_id, code=one.fault.code, detail=one.fault.message)
                for one in outcomes
                if isinstance(one, Refused)
            ],
            tasks=[],
        )

    def _bulk_id(self, body: RepairManyInput) -> tuple[UUID, bool]:
        """Return what the repairs' ids are made of, and whether the request is a repeat."""
        key = clean_key(self.request.headers.get(HEADER))
        if key is None:
            return body.bulk_id or uuid.uuid4(), False

        def checked() -> Kept:
            check_repairs(
                self.principal,
                tasks=_targets(body),
                verb=body.verb,
                payload=body.payload,
                reason=body.reason,
            )
            return Kept(200, None)

        request = {"route": self.request.path, "body": self.request.data}
        kept = once(self.principal, key=key, request=request, act=checked)
        made_of = f"repairs:{self.principal.actor}:{key}"
        return body.bulk_id or uuid.uuid5(self.principal.tenant_id, made_of), kept.replayed


def _targets(body: RepairManyInput) -> list[tuple[UUID, int | None]]:
    return [(target.task_id, target.expected_version) for target in body.tasks]


class HeldListView(RuntimeView):
    """The tasks that wait for a repair."""

    capabilities: ClassVar = {"GET": "tasks:read"}
    query_models: ClassVar = {"GET": HeldQuery}

    @documented(
        "listHeldTasks", "List held tasks", capability="tasks:read", query=HeldQuery,
        returns=HeldPage,
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Return the visible tasks that are held, the longest held first."""
        return self.page(HeldItem, list_held)


class CauseListView(RuntimeView):
    """Why tasks are held."""

    capabilities: ClassVar = {"GET": "tasks:read"}

    @documented(
        "listHeldCauses", "Count held tasks by cause", capability="tasks:read", returns=CauseList
    )
    def get(self, request: Request) -> Response:
        """Return how many visible tasks are held for each cause."""
        return answer(
            CauseList(items=[CauseOut.of(found) for found in count_causes(self.principal)])
        )
