"""What `manage.py check` tells about declarations (E12)."""

import random
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from pydantic import BaseModel
from pytest_django import Settings
from typing_extensions import override

from tasks_app.domain.errors import ConfigurationError
from tasks_app.workflows import (
    FunctionContext,
    StepContext,
    Workflow,
    checks,
    durable_function,
    effect,
    registry,
    step,
    workflow,
)


class Goal(BaseModel, extra="forbid"):
    n: int = 1


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_known", {})


def told() -> list[tuple[str, str]]:
    return [(str(message.id), str(message.msg)) for message in checks.check_workflows(None)]


class Opaque:
    pass


def test_result_without_a_json_form_is_told() -> None:
    """It would be noticed only after the first run."""

    @workflow(name="x", version=1)
    class Unstorable(Workflow[Goal, Any]):
        @step()
        def look(self, ctx: StepContext) -> Opaque:
            return Opaque()

        @step()
        def fine(self, ctx: StepContext) -> dict[str, datetime]:
            return {}

        @step()
        def silent(self, ctx: StepContext):  # type: ignore[no-untyped-def] # noqa: ANN202
            return 1

    [(code, message)] = told()
    assert code == "tasks_app.E012"
    assert "x.look" in message


def test_atomic_step_longer_than_the_lease_is_told(settings: Settings) -> None:
    """Its transaction must have ended before somebody else may take the task over."""

    @workflow(name="x", version=1)
    class Slow(Workflow[Goal, Any]):
        @step(atomic=True, timeout_seconds=20)
        def book(self, ctx: StepContext) -> None: ...

    settings.RUNTIME = {**settings.RUNTIME, "lease_seconds": 30.0}
    assert told() == []
    settings.RUNTIME = {**settings.RUNTIME, "lease_seconds": 20.0}
    [(code, message)] = told()
    assert code == "tasks_app.E011"
    assert "x.book" in message


def test_what_a_plan_reads_from_outside_is_told_with_its_line() -> None:
    """E12: `plan` builds data; files, network, clock, chance and rows belong into steps."""

    @workflow(name="x", version=1)
    class Reading(Workflow[Goal, Any]):
        @override
        def plan(self, goal: Goal, p: Any) -> Any:
            with open("/etc/hostname") as source:
                source.read()
            time.monotonic()
            datetime.now().date()  # noqa: DTZ005
            random.random()  # noqa: S311
            Group.objects.count()
            return p.sleep(timedelta(days=1))

    found = told()
    assert {code for code, _ in found} == {"tasks_app.W013"}
    used = sorted(message.split("uses ")[1].split(" ")[0] for _, message in found)
    assert used == ["Group.objects", "datetime.now", "open", "random.random", "time.monotonic"]
    assert all("test_checks.py:" in message for _, message in found)


def test_approval_without_a_deadline_is_told() -> None:
    """Otherwise it fails at the first task."""

    @workflow(name="x", version=1)
    class Endless(Workflow[Goal, Any]):
        @override
        def plan(self, goal: Goal, p: Any) -> Any:
            p.approval("send", deadline=timedelta(hours=1))
            return p.approval("send", quorum=2)

    [(code, _)] = told()
    assert code == "tasks_app.E014"


def test_step_declared_twice_is_told() -> None:
    """The second one silently takes the place of the first."""

    @workflow(name="x", version=1)
    class Twice(Workflow[Goal, Any]):
        @step()
        def look(self, ctx: StepContext) -> int:
            return 1

        @step()  # type: ignore[no-redef]
        def look(self, ctx: StepContext) -> int:  # noqa: F811
            return 2

    assert [code for code, _ in told()] == ["tasks_app.E010"]


def test_function_with_two_acts_of_one_name_is_refused() -> None:
    """Rows know an act by its name."""

    def made() -> Any:
        @effect(kind="keyed")
        def send(ctx: StepContext) -> None: ...

        return send

    first, second = made(), made()

    def write(ctx: FunctionContext, goal: Goal) -> None:
        ctx.effect("a", first)
        ctx.effect("b", second)

    with pytest.raises(ConfigurationError, match="two steps are called send"):
        durable_function(name="x", version=1)(write)


def test_our_own_workflows_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is told about what the product brings along."""
    monkeypatch.undo()
    assert registry.registered()
    assert told() == []


def test_goal_that_takes_unknown_fields_is_told() -> None:
    """A mistyped field of a changed goal would be stored and change nothing."""

    class Loose(BaseModel):
        n: int = 1

    @workflow(name="x", version=1)
    class Careless(Workflow[Loose, Any]):
        @override
        def plan(self, goal: Loose, p: Any) -> Any:
            return None

    [(code, text)] = told()
    assert code == "tasks_app.W016"
    assert "The goal of x takes fields that it does not know" in text
