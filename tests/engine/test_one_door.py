"""runs.md R13, as it runs: whatever door a task came by, one function stored it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models.signals import pre_save
from django.utils import timezone
from pydantic import BaseModel
from typing_extensions import override

from tasks_app.admission import firing, repairs, schedules
from tasks_app.admission.schedules import Plan
from tasks_app.admission.tasks import admit_task
from tasks_app.domain.schedules import Timing
from tasks_app.models import Run, Schedule, Task
from tasks_app.workflows import Workflow, registry
from tests.api.calls import Api, task_body
from tests.factories import make_api_key, make_task
from tests.support.engine import Engine

TABLES = ("tasks_app_task", "tasks_app_run")
GOAL: dict[str, Any] = {"script": [{"op": "say", "text": "x"}]}


@contextmanager
def watched() -> Iterator[list[tuple[str, ...]]]:
    """Collect for each insert into the tables by which functions of the product it was reached."""
    ways: list[tuple[str, ...]] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        text = sql.replace('"', "")
        if any(f"INSERT INTO {table} " in text for table in TABLES):
            ways.append(_way())
        return execute(sql, params, many, context)

    def saved(sender: Any, instance: Any, **_: Any) -> None:
        if sender in (Task, Run) and instance._state.adding:
            ways.append(_way())

    pre_save.connect(saved)
    try:
        with connection.execute_wrapper(look):
            yield ways
    finally:
        pre_save.disconnect(saved)


def _way() -> tuple[str, ...]:
    frame = sys._getframe(1)
    names = []
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__", "").startswith(
            ("tasks_app.admission", "tasks_app.engine")
        ):
            names.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_name}")
    return tuple(names)


def api_of(engine: Engine) -> Api:
    person = User.objects.get(pk=engine.submitter.user_id or 0)
    _, key = make_api_key(
        engine.tenant, person, ("tasks:read", "tasks:create", "tasks:cancel", "tasks:steer")
    )
    return Api(key, person)


def by_rest(engine: Engine) -> None:
    assert api_of(engine).post("/runtime/tasks", task_body()).status_code == 201


def by_run_door(engine: Engine) -> None:
    body = {"assistant_id": "scripted", "input": GOAL, "if_not_exists": "create"}
    answer = api_of(engine).post("/api/threads/talk/runs", body)
    assert answer.status_code == 200, answer.content


def by_stateless_runs(engine: Engine) -> None:
    answer = api_of(engine).post("/api/runs", {"assistant_id": "scripted", "input": GOAL})
    assert answer.status_code == 200, answer.content


def by_code(engine: Engine) -> None:
    admit_task(engine.submitter, workflow="scripted", goal=GOAL, source="code")


def _schedule(engine: Engine) -> Schedule:
    plan = Plan(name=uuid4().hex, workflow="scripted", goal=GOAL, timing=Timing("0 0 1 1 *"))
    return schedules.create_schedule(engine.submitter, plan)


def by_firing(engine: Engine) -> None:
    assert schedules.fire_now(engine.submitter, schedule_id=_schedule(engine).pk)


def by_time(engine: Engine) -> None:
    rows = Schedule.objects.for_tenant(engine.tenant.id).filter(pk=_schedule(engine).pk)
    past = timezone.now() - timedelta(seconds=5)
    rows.update(due_at=past, fires_at=past, starts_at=past)
    assert firing.fire_due() == 1


def by_fork(engine: Engine) -> None:
    held = Task.objects.for_tenant(engine.tenant.id).get(status="dead_lettered")
    repairs.repair_task(
        engine.operator, task_id=held.pk, repair_id=uuid4(), verb="fork", payload={},
        expected_version=1, reason="r", source="rest",
    )  # fmt: skip


def by_a_step(engine: Engine) -> None:
    task = Task.objects.for_tenant(engine.tenant.id).get(workflow="starts_one")
    engine.run(task.pk)


ADMIT = "tasks_app.admission.admitting.admit"
STORE = "tasks_app.engine.intake.store_tasks"
CHILD = "tasks_app.engine.child_runner._store"
DOORS: dict[Callable[[Engine], None], str] = {
    by_rest: ADMIT,
    by_run_door: ADMIT,
    by_stateless_runs: ADMIT,
    by_code: ADMIT,
    by_firing: ADMIT,
    by_time: ADMIT,
    by_fork: ADMIT,
    by_a_step: CHILD,
}


class Nothing(BaseModel):
    """A goal without anything in it."""


class StartsOne(Workflow[Nothing, Any]):
    """Starts a child and does not wait for it."""

    workflow_name, version, title, description, acts = "starts_one", 1, "Starts", "", ()

    @override
    def plan(self, goal: Nothing, p: Any) -> Any:
        return p.child(registry.get_definition("scripted"), GOAL, wait=False)


@pytest.fixture
def ready(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """What the doors need to be there before anybody watches."""
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    registry.add(StartsOne)
    admit_task(engine.submitter, workflow="starts_one", goal={}, source="code")
    make_task(
        tenant=engine.tenant, initiator=User.objects.get(pk=engine.submitter.user_id or 0),
        status="dead_lettered", goal=GOAL, held_at=timezone.now(),
        error={"code": "too_many_recoveries", "message": "x"},
    )  # fmt: skip
    return engine


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_every_task_comes_by_the_one_function(
    ready: Engine, door: Callable[[Engine], None]
) -> None:
    """Whatever is written into the two tables was reached through it, and something was."""
    with watched() as ways:
        door(ready)
    assert ways
    for way in ways:
        assert STORE in way, way
        assert DOORS[door] in way, way


def test_another_way_is_seen(ready: Engine) -> None:
    """The watch sees a row that a test makes by itself."""
    with watched() as ways:
        make_task(tenant=ready.tenant)
    assert ways
    assert not any(STORE in way for way in ways)
