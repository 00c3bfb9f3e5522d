"""What the decorators and the registry refuse when the project starts (E12)."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import override

from tasks_app.domain.errors import ConfigurationError
from tasks_app.workflows import StepContext, Workflow, effect, registry, step, workflow
from tasks_app.workflows.planning import build_plan


class Goal(BaseModel):
    n: int = 1


class Base(Workflow[Goal, int]):
    """Steps for plans of these tests."""

    @step()
    def one(self, ctx: StepContext, n: int) -> int:
        return n

    @effect(kind="keyed")
    def act(self, ctx: StepContext, n: int) -> None:
        return None


Base.workflow_name = "base"


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_known", dict(registry._known))


def declare(**members: Any) -> type[Workflow[Any, Any]]:
    return workflow(name="x", version=1)(type("X", (Base,), members))


def test_step_named_like_a_hook_is_refused() -> None:
    """A step called `check` would replace the check of the goal."""

    @step()
    def check(self: Any, ctx: StepContext, n: int) -> int:
        return n

    with pytest.raises(ConfigurationError, match="cannot be called check"):
        declare(check=check)


def test_effect_needs_a_known_kind() -> None:
    """An effect says how the other side recognises a second call."""

    @effect(kind="hopeful")
    def send(self: Any, ctx: StepContext) -> None:
        return None

    with pytest.raises(ConfigurationError, match="effect kind"):
        declare(send=send)


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"kind": "queryable"}, "names its find"),
        ({"kind": "keyed", "find": "one"}, "names its find"),
        ({"kind": "queryable", "find": "nothing"}, "no method"),
        ({"kind": "keyed", "unattended": True}, "unattended"),
        ({"kind": "keyed", "compensate": "one"}, "names no effect"),
        ({"kind": "keyed", "compensate": "nothing"}, "names no effect"),
        ({"kind": "keyed", "compensate": "send"}, "not undone itself"),
    ],
)
def test_effect_that_contradicts_its_kind_is_refused(
    declared: dict[str, Any], problem: str
) -> None:
    """What is declared for another kind would have no effect, and be missed when it matters."""

    @effect(**declared)
    def send(self: Any, ctx: StepContext) -> None:
        return None

    with pytest.raises(ConfigurationError, match=problem):
        declare(send=send)


def test_approve_before_must_name_an_effect() -> None:
    """A misspelt name would silently leave an act unapproved."""
    with pytest.raises(ConfigurationError, match="approve_before"):
        declare(approve_before=("sendd",))


def test_two_workflows_of_one_name_are_refused() -> None:
    """The name decides which code runs."""
    declare()
    with pytest.raises(ConfigurationError, match="two workflows"):
        workflow(name="x", version=1)(type("Y", (Base,), {}))


def plan_of(build: Any) -> Any:
    class Planned(Base):
        @override
        def plan(self, goal: Goal, p: Any) -> Any:
            return build(self, goal, p)

    Planned.workflow_name = "planned"
    return build_plan(Planned, Goal(), [])


def test_signature_follows_arguments_through_references() -> None:
    """Equal signatures mean equal work: a changed argument changes every step behind it."""

    def chain(n: int) -> Any:
        def build(self: Any, goal: Goal, p: Any) -> Any:
            return p.step(self.one, p.step(self.one, n))

        return [planned.signature for planned in plan_of(build).steps]

    assert chain(1) == chain(1)
    assert set(chain(1)).isdisjoint(chain(2))


def test_repeated_steps_get_keys_of_their_own() -> None:
    """The same method planned twice is two steps."""

    def build(self: Any, goal: Goal, p: Any) -> Any:
        p.step(self.one, 1)
        return p.step(self.one, 1)

    assert [planned.key for planned in plan_of(build).steps] == ["one", "one.2"]


@pytest.mark.parametrize(
    "build",
    [
        lambda self, goal, p: p.step(self.act, 1),
        lambda self, goal, p: p.effect(self.one, 1),
        lambda self, goal, p: p.step(len, 1),
        lambda self, goal, p: p.map(self.one, [1], chunk=0),
        lambda self, goal, p: p.approval("act", deadline=timedelta(days=8)),
        lambda self, goal, p: p.approval("act", deadline=timedelta(hours=1), on_timeout="maybe"),
        lambda self, goal, p: p.effect(self.act, 1, approval=p.step(self.one, 1)),
    ],
)
def test_wrong_plan_is_refused(build: Any) -> None:
    """A plan that could not be executed is never stored."""
    with pytest.raises(ConfigurationError):
        plan_of(build)


def test_effect_wanted_approved_gets_its_own_approval() -> None:
    """`approve_before` without an approval in the plan puts one in front of the act."""

    class Careful(Base):
        approve_before = ("act",)

        @override
        def plan(self, goal: Goal, p: Any) -> Any:
            return p.effect(self.act, 1)

    Careful.workflow_name = "careful"
    steps = build_plan(Careful, Goal(), []).steps
    assert [(planned.kind, planned.key) for planned in steps] == [
        ("approval", "approve_act"),
        ("effect", "act"),
    ]
    assert steps[1].options["approval"] == "approve_act"
