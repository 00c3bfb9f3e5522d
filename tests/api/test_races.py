"""Two callers at once: one wins, the other is told; nothing is done twice."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from tasks_app.models import Repair, SteeringCommand, Task
from tests.api.calls import Api, api_of, task_body
from tests.api.world import DIGEST, make_world
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Return the answers of calls that start together, each on a connection of its own."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            barrier.wait(timeout=10)
            return call()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def statuses(answers: list[Any]) -> list[int]:
    return sorted(answer.status_code for answer in answers)


def test_one_version_takes_one_command() -> None:
    """M16: of two operators who saw version 1, one is accepted and one gets 409."""
    world = make_world(status="queued")
    path = world.path("/runtime/tasks/{task}/commands")
    body = {"type": "pause", "expectedVersion": 1, "reason": "r"}
    callers = [api_of(world.tenant, "operator") for _ in range(4)]
    answers = at_once(*(lambda api=api: api.post(path, body) for api in callers))
    assert statuses(answers) == [202, 409, 409, 409]
    assert SteeringCommand.objects.for_tenant(world.tenant.id).count() == 1


def test_one_version_takes_one_repair() -> None:
    """E61: of two operators who repair one held task, one is accepted and one gets 409."""
    world = make_world(status="dead_lettered")
    path = world.path("/runtime/tasks/{task}/repairs")
    callers = [api_of(world.tenant, "operator") for _ in range(3)]
    answers = at_once(
        *(
            lambda api=api, verb=verb: api.post(
                path, {"verb": verb, "expectedVersion": 1, "reason": "r"}
            )
            for api, verb in zip(callers, ("requeue", "close", "requeue"), strict=True)
        )
    )
    assert statuses(answers) == [202, 409, 409]
    assert Repair.objects.for_tenant(world.tenant.id).count() == 1


def test_repair_and_cancel_at_once() -> None:
    """One of the two happens; the other is told that the task moved on or has ended."""
    world = make_world(status="dead_lettered", goal={"script": [{"op": "say"}]})
    caller, other = (api_of(world.tenant, "operator") for _ in range(2))
    body = {"expectedVersion": 1, "reason": "r"}
    answers = at_once(
        lambda: caller.post(world.path("/runtime/tasks/{task}/repairs"), {"verb": "fork", **body}),
        lambda: other.post(
            world.path("/runtime/tasks/{task}/commands"), {"type": "cancel", **body}
        ),
    )
    assert statuses(answers) == [202, 409]
    task = Task.objects.for_tenant(world.tenant.id).get(pk=world.task.pk)
    assert task.status == "cancelled"
    forks = Task.objects.for_tenant(world.tenant.id).filter(forked_from_id=world.task.pk).count()
    assert forks == Repair.objects.for_tenant(world.tenant.id).count()


def test_one_key_makes_one_task() -> None:
    """R23: concurrent equal requests are one row; the others are replays of it."""
    api = api_of(make_tenant(), "submitter")
    callers = [Api(api.key) for _ in range(4)]
    answers = at_once(
        *(
            lambda caller=caller: caller.post("/runtime/tasks", task_body(), Idempotency_Key="k")
            for caller in callers
        )
    )
    assert statuses(answers) == [200, 200, 200, 201]
    assert len({answer.json()["taskId"] for answer in answers}) == 1
    assert Task.objects.all_tenants("only one was made").count() == 1


def test_one_approval_is_decided_once() -> None:
    """S62: two approvers at once, one decision."""
    world = make_world()
    path = world.path("/runtime/approvals/{approval}/decision")
    callers = [api_of(world.tenant, "approver") for _ in range(3)]
    answers = at_once(
        *(
            lambda api=api, word=word: api.post(
                path,
                {"decision": word, "argsSha256": DIGEST, "expectedVersion": 1, "reason": "r"},
            )
            for api, word in zip(callers, ("approve", "deny", "approve"), strict=True)
        )
    )
    assert statuses(answers) == [200, 409, 409]
