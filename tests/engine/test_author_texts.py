"""Whatever an author's code says is stored in the nearest form, and holds no task for a false reason."""

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from typing_extensions import override

from tasks_app.admission import tasks
from tasks_app.models import Artifact, Attempt, Event
from tasks_app.workflows import (
    Collect,
    EffectNotDoneError,
    FunctionContext,
    ItemError,
    Retry,
    StepContext,
    StepFailedError,
    Workflow,
    effect,
    step,
    workflow,
)
from tests.support.engine import Engine
from tests.support.functions import define, start

pytestmark = pytest.mark.usefixtures("own_registry")

# U+0000, which PostgreSQL refuses, and half of a character, which no hash can be made of.
ODD = "a\x00b\ud800c"
PLAIN = "a\ufffdb\ufffdc"
ONCE = Retry(max=1)
CALLS: Counter[str] = Counter()


class SilentError(Exception):
    """Cannot say what it means, and carries fields of a library's own."""

    code = 404
    evidence = 5

    @override
    def __str__(self) -> str:
        raise ValueError("no words")


class Goal(BaseModel):
    does: str
    text: str = "odd"


class Says(Workflow[Goal, Any]):
    """One step that says something odd in one place."""

    @override
    def plan(self, goal: Goal, p: Any) -> Any:
        match goal.does:
            case "refuse":
                return p.effect(self.refuse)
            case "items":
                return p.map(self.examine, [1], on_error=Collect())
            case "atomic":
                return p.step(self.write)
            case _:
                return p.step(self.speak, goal.does)

    @step(retry=ONCE)
    def speak(self, ctx: StepContext, place: str) -> str:
        CALLS[f"{ctx.task_id}"] += 1
        match place:
            case "log":
                ctx.log(ODD, **{"fact": ODD, ODD: 1})
            case "progress":
                ctx.progress(1, 2, phase=ODD + "x" * 200)
            case "artifact":
                ctx.artifact(ODD, b"x", ODD + "x" * 200)
            case "usage":
                ctx.usage(ODD, model=ODD, input_tokens=5)
                ctx.usage("b", model="small", input_tokens=-1)
                ctx.usage("c", model="small", input_tokens=None)  # type: ignore[arg-type]
            case "error":
                raise ValueError(ODD)
            case "silent":
                raise SilentError
        return "said"

    @step(atomic=True)
    def write(self, ctx: StepContext) -> str:
        CALLS[f"{ctx.task_id}"] += 1
        ctx.log(ODD)
        ctx.artifact(ODD, b"x", ODD)
        ctx.usage(ODD, model=ODD, input_tokens=5)
        return "said"

    @step(pure=True, retry=ONCE)
    def examine(self, ctx: StepContext, item: int) -> None:
        CALLS[f"{ctx.task_id}"] += 1
        raise ItemError(ODD, ODD)

    @effect(kind="keyed")
    def refuse(self, ctx: StepContext) -> None:
        CALLS[f"{ctx.task_id}"] += 1
        raise EffectNotDoneError(ODD, ODD)


@pytest.fixture(autouse=True)
def _says(own_registry: None) -> None:
    workflow(name="says", version=1, title="Says")(Says)


def run(engine: Engine, does: str, **rest: Any) -> Any:
    task_id: UUID = tasks.admit_task(
        engine.submitter, workflow="says", goal={"does": does}, source="code", **rest
    ).task_id
    task = engine.drive(task_id)
    assert CALLS[f"{task_id}"] == 1
    engine.assert_audit_verifies(task_id)
    return task


@pytest.mark.parametrize("does", ["log", "progress", "artifact", "usage", "atomic", "items"])
def test_odd_text_is_stored_in_its_nearest_form(engine: Engine, does: str) -> None:
    """A line, a phase, a name or an id is cleaned and cut; the body runs once and the task ends."""
    task = run(engine, does, budget={"tokens": 100})
    assert task.status == "completed", task.error


def test_journal_shows_what_was_said(engine: Engine) -> None:
    """What cannot be stored is shown as the sign that stands for it."""
    task = run(engine, "log")
    told = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task.id, type="log")
    assert [event.data for event in told] == [
        {"message": PLAIN, "facts": {"fact": PLAIN, PLAIN: "1"}}
    ]
    named = run(engine, "artifact")
    [stored] = Artifact.objects.for_tenant(engine.tenant.id).filter(task_id=named.id)
    assert (stored.name, len(stored.media_type)) == (PLAIN, 100)


def test_malformed_usage_is_told_and_not_counted(engine: Engine) -> None:
    """What a provider got wrong fails nobody's step."""
    task = run(engine, "usage")
    told = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task.id, type="log")
    assert sum("not counted" in event.data["message"] for event in told) == 2


def test_error_is_the_tasks_own(engine: Engine) -> None:
    """The task fails with what its code said, at its last try, and not for vanished workers."""
    task = run(engine, "error")
    assert (task.status, task.error["message"]) == ("failed", PLAIN)
    [attempt] = Attempt.objects.for_tenant(engine.tenant.id).filter(task_id=task.id)
    assert PLAIN in attempt.error["trace"]
    silent = run(engine, "silent")
    assert (silent.status, silent.error["code"]) == ("failed", "SilentError")
    refused = run(engine, "refuse")
    assert (refused.status, refused.error["code"], refused.stop_reason) == (
        "failed",
        PLAIN,
        "effect_failed",
    )


def test_used_model_without_a_price_ends_the_task(engine: Engine) -> None:
    """S73: the call was made and counts; nothing else starts, and nothing runs again."""

    def call(ctx: StepContext) -> int:
        CALLS[f"{ctx.task_id}"] += 1
        ctx.usage("a", model="dear", input_tokens=5)
        return 5

    def spend(ctx: FunctionContext, goal: Goal) -> int:
        return int(ctx.step("one", call)) + int(ctx.step("two", call))

    task_id = tasks.admit_task(
        engine.submitter,
        workflow=define(spend),
        goal={"does": "spend"},
        source="code",
        budget={"money_micros": 50},
    ).task_id
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason) == ("failed", "price_unknown"), task.error
    assert CALLS[f"{task_id}"] == 1


def fail(ctx: StepContext) -> None:
    raise ValueError(ODD)


def stumbles(ctx: FunctionContext, goal: Goal) -> str:
    ctx.log(ODD)
    said = ""
    try:
        ctx.step("try", step(retry=ONCE)(fail))
    except StepFailedError as error:
        said = str(error)
    if goal.text == "ask":
        ctx.question("ask", prompt=ODD, answer=str)
    raise RuntimeError(said + ODD)


def test_functions_say_odd_things_too(engine: Engine) -> None:
    """The function form stores by the same ways."""
    task = engine.drive(start(engine, stumbles, does="stumble"))
    assert (task.status, task.error["message"]) == ("failed", PLAIN * 2)
    asks = engine.drive(start(engine, stumbles, does="stumble", text="ask"))
    assert asks.status == "input_required"
