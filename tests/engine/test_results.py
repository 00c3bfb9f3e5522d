"""What a step returns is what its annotation promises, and is stored as it is or not at all."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from typing_extensions import override

from tasks_app.admission import tasks
from tasks_app.engine import values
from tasks_app.models import Event, StepRange
from tasks_app.workflows import Collect, Found, StepContext, Workflow, effect, step, workflow
from tests.support.engine import Engine

pytestmark = pytest.mark.usefixtures("own_registry")
RUNS: Counter[str] = Counter()


class Goal(BaseModel):
    does: str


class Money(BaseModel):
    cents: int
    at: datetime | None = None


def given(does: str) -> Any:
    """Return what the steps of the test return."""
    return {
        "text": "wrong type",
        "none": None,
        "nan": float("nan"),
        "inside": {"a": [1, {"b": float("-inf")}]},
        "nul": {"a": "x\x00"},
        "half": "x\ud800",
        "large": 2**60,
        "deep": deep(70),
        "object": object(),
    }[does]


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else 1


class Returns(Workflow[Goal, Any]):
    """Steps that return what they should not."""

    @override
    def plan(self, goal: Goal, p: Any) -> Any:
        kind, _, does = goal.does.partition(" ")
        match kind:
            case "int":
                return p.step(self.take, p.step(self.number, does))
            case "any":
                return p.step(self.anything, does)
            case "atomic":
                return p.step(self.book, does)
            case "map":
                p.map(self.number, [does, "large"], on_error=Collect())
                return None
            case "keyed":
                return p.effect(self.send, does)
            case _:
                return p.effect(self.ask, does)

    @step()
    def number(self, ctx: StepContext, does: str) -> int:
        RUNS[f"{ctx.task_id}"] += 1
        found: int = given(does)
        return found

    @step()
    def take(self, ctx: StepContext, number: int) -> int:
        RUNS["taken"] += 1
        return number

    @step()
    def anything(self, ctx: StepContext, does: str) -> Any:
        RUNS[f"{ctx.task_id}"] += 1
        return given(does)

    @step(atomic=True)
    def book(self, ctx: StepContext, does: str) -> Money:
        RUNS[f"{ctx.task_id}"] += 1
        found: Money = given(does)
        return found

    @effect(kind="keyed")
    def send(self, ctx: StepContext, does: str) -> int:
        RUNS[f"{ctx.task_id}"] += 1
        found: int = given(does)
        return found

    @effect(kind="queryable", find="look")
    def ask(self, ctx: StepContext, does: str) -> int:
        RUNS[f"{ctx.task_id}"] += 1
        raise ConnectionError("the line was cut")

    def look(self, ctx: StepContext, does: str) -> Found[int]:
        return Found(given(does))


@pytest.fixture(autouse=True)
def _returns(own_registry: None) -> None:
    workflow(name="returns", version=1)(Returns)


def run(engine: Engine, does: str) -> Any:
    task_id: UUID = tasks.admit_task(
        engine.submitter, workflow="returns", goal={"does": does}, source="code"
    ).task_id
    return engine.drive(task_id)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("int text", "Returns.number returned no int: Input should be a valid integer"),
        ("int none", "Returns.number returned no int"),
        ("int nan", "Returns.number returned no int"),
        ("any nan", "returned number that is not finite at the top level"),
        ("any inside", "returned number that is not finite at /a/1/b"),
        ("any deep", "returned nested deeper than 64"),
        ("any object", "Returns.anything returned no JSON value"),
        ("atomic text", "Returns.book returned no Money"),
    ],
)
def test_result_that_is_not_promised_fails_its_step(engine: Engine, does: str, said: str) -> None:
    """The step that returns it fails at once, with a code of its own; the next is not blamed."""
    task = run(engine, does)
    assert (task.status, task.stop_reason) == ("failed", "step_failed")
    assert (task.error["code"], said in task.error["message"]) == ("result_invalid", True), task
    assert RUNS[f"{task.id}"] == 1
    assert "wrong type" not in task.error["message"]


@pytest.mark.parametrize(
    ("does", "result", "place"),
    [
        ("any nul", {"a": "x\ufffd"}, "U+0000 at /a"),
        ("any half", "x\ufffd", "lone surrogate at the top level"),
        ("any large", str(2**60), "send it as text at the top level"),
    ],
)
def test_result_in_another_form_is_told(engine: Engine, does: str, result: Any, place: str) -> None:
    """Text is replaced and a large number is spelled as text, and the journal says where."""
    task = run(engine, does)
    assert (task.status, task.result) == ("completed", result)
    told = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task.id, type="log")
    assert [place in event.data["message"] for event in told] == [True]


def test_large_number_is_read_again(engine: Engine) -> None:
    """What takes it as a number gets the number."""
    assert run(engine, "int large").result == str(2**60)


def test_item_with_a_wrong_result_is_one_failed_item(engine: Engine) -> None:
    """A collecting map goes on; the item is not run again for what would not change."""
    task = run(engine, "map text")
    assert task.status == "completed"
    [stored] = StepRange.objects.for_tenant(engine.tenant.id).filter(task_id=task.id)
    assert [("error" in row) for row in stored.results["inline"]] == [True, False]
    assert RUNS[f"{task.id}"] == 2


@pytest.mark.parametrize("kind", ["keyed", "queryable"])
def test_act_with_a_wrong_result_is_a_persons(engine: Engine, kind: str) -> None:
    """It has happened: it is neither called again for its answer nor taken for undone."""
    task = run(engine, f"{kind} text")
    while task.status == "queued":
        task = engine.drive(task.id)
    assert (task.status, task.error["code"]) == ("dead_lettered", "effect_in_doubt")
    assert "returned no int" in task.error["message"]
    assert RUNS[f"{task.id}"] == 1


class Base(BaseModel):
    name: str


class More(Base):
    size: int


@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [
        (Money, {"cents": 5}, {"cents": 5}),
        (Money, Money(cents=5, at=datetime(2026, 1, 1, tzinfo=UTC)), None),
        (list[int], (1, 2), [1, 2]),
        (dict[str, Any], Money(cents=5), {"cents": 5, "at": None}),
        (str, UUID(int=5), str(UUID(int=5))),
        (Base, More(name="a", size=3), {"name": "a"}),
        (None, None, None),
        (None, "kept by nobody", None),
        (Any, {1: (2,)}, {"1": [2]}),
    ],
)
def test_what_can_be_read_again_is_taken(annotation: Any, value: Any, stored: Any) -> None:
    """The check is no stricter than what reads the result."""

    def returns(ctx: StepContext) -> Any: ...

    returns.__annotations__["return"] = annotation
    data, _ = values.to_json(returns, value)
    assert data == stored or stored is None
