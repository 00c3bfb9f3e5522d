"""What the decorators and the registry refuse when the project starts (E12)."""

import os
import subprocess
import sys
import types
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, RootModel
from typing_extensions import override

from tasks_app.domain.errors import ConfigurationError
from tasks_app.workflows import (
    Budget,
    CheckpointPolicy,
    Estimate,
    Retry,
    StepContext,
    Workflow,
    effect,
    registry,
    step,
    workflow,
)
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


def test_workflow_of_another_module_is_another_one() -> None:
    """A class of the same name elsewhere does not silently take the first one's place."""
    declare()
    other = type("X", (Base,), {"__module__": "shop.durable"})
    with pytest.raises(ConfigurationError, match=r"two workflows .*shop\.durable\.X"):
        workflow(name="x", version=1)(other)


@pytest.mark.parametrize(
    "name", ["", "E bad/../name", "a/b", ".a", "a.", "-a", "a b", "a\x00", "é", "a" * 101, None, 5]
)
def test_name_that_no_address_can_hold_is_refused(name: Any) -> None:
    """Pages, addresses and rows hold it."""
    with pytest.raises(ConfigurationError, match="a name has letters"):
        workflow(name=name, version=1)(type("X", (Base,), {}))


@pytest.mark.parametrize("name", ["a", "a.b-c", "Carries_nothing-2", "a" * 100])
def test_plain_name_is_taken(name: str) -> None:
    """The rule is no stricter than it has to be."""
    assert workflow(name=name, version=1)(type("X", (Base,), {})).workflow_name == name


class Numbers(RootModel[list[int]]):
    """A goal without fields."""


class Tree(BaseModel):
    name: str
    below: "list[Tree]" = []


class Handle:
    """No data."""


class ByHandle(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    handle: Handle


@pytest.mark.parametrize("goal", [Numbers, ByHandle, int, Any])
def test_goal_that_no_form_can_show_is_refused(goal: Any) -> None:
    """Lists of workflows give each goal's schema, and pages make a form of it."""
    with pytest.raises(ConfigurationError, match="goal"):
        workflow(name="x", version=1)(types.new_class("X", (Workflow[goal, int],)))


def test_workflow_without_type_arguments_is_refused() -> None:
    """Its goal is nothing."""
    with pytest.raises(ConfigurationError, match="must name its goal"):
        workflow(name="x", version=1)(type("X", (Workflow,), {}))


def test_goal_that_names_itself_has_fields() -> None:
    """Its schema is a reference; forms need what it refers to."""
    workflow(name="x", version=1)(types.new_class("X", (Workflow[Tree, int],)))
    schema = registry.get_workflow("x").schema
    assert (list(schema["properties"]), "$ref" in schema) == (["name", "below"], False)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"version": "1"}, "version must be"),
        ({"version": 0}, "version must be"),
        ({"version": True}, "version must be"),
        ({"version": 2**31}, "version must be"),
        ({"title": 5}, "title must be"),
        ({"description": None}, "description must be"),
        ({"acts": ("a", 1)}, "acts must be"),
        ({"acts": "sends"}, "acts must be"),
        ({"compatible_with": 2}, "compatible_with must be"),
        ({"compatible_with": ("2",)}, "compatible_with must be"),
        ({"compatible_with": (1,)}, "other versions"),
    ],
)
def test_decorator_takes_what_pages_can_show(said: dict[str, Any], problem: str) -> None:
    """One wrong declaration must not take the pages of all down."""
    with pytest.raises(ConfigurationError, match=f"x: .*{problem}"):
        workflow(**{"name": "x", "version": 1, **said})(type("X", (Base,), {}))


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"approve_before": "act"}, "approve_before must be a tuple of texts"),
        ({"budget": {"tokens": 5}}, "budget must be a Budget"),
        ({"budget": Budget(tokens=-1)}, "budget.tokens must be"),
        ({"budget": Budget(steps=1.5)}, "budget.steps must be"),  # type: ignore[arg-type]
        ({"checkpoint": 10}, "checkpoint must be"),
        ({"checkpoint": CheckpointPolicy(every_steps=0)}, "checkpoint must"),
        ({"look": step(title=5)(lambda self, ctx: None)}, "title must be"),  # type: ignore[arg-type]
        ({"look": step(retry=3)(lambda self, ctx: None)}, "retry must be"),  # type: ignore[arg-type]
        ({"look": step(retry=Retry(max=0))(lambda self, ctx: None)}, "retry must have"),
        ({"look": step(timeout_seconds=0)(lambda self, ctx: None)}, "timeout_seconds must"),
        ({"look": step(estimate=9)(lambda self, ctx: None)}, "estimate must be"),  # type: ignore[arg-type]
        (
            {"look": step(estimate=Estimate(tokens=-9))(lambda self, ctx: None)},
            "estimate must have",
        ),
    ],
)
def test_class_says_what_the_engine_can_keep(members: dict[str, Any], problem: str) -> None:
    """Found where it is written, not by the first task."""
    with pytest.raises(ConfigurationError, match=problem):
        declare(**members)


def test_hook_that_is_async_is_refused() -> None:
    """Nobody would await it."""

    async def plan(self: Any, goal: Goal, p: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="plan must be a plain method"):
        declare(plan=plan)


MISTAKE = """
from pydantic import BaseModel
from tasks_app.workflows import Workflow, effect, workflow

class Goal(BaseModel):
    n: int

@workflow(name="greet", version=1)
class Greet(Workflow[Goal, int]):
    @effect(kind="hopeful")
    def send(self, ctx): ...
"""


@pytest.mark.slow
def test_check_names_the_line_of_a_mistake(tmp_path: Path) -> None:
    """An author reads what is wrong and where, without our stack."""
    app = tmp_path / "letters_app"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "durable.py").write_text(MISTAKE)
    (tmp_path / "with_mistake.py").write_text(
        "from runtime_project.settings_test import *\nINSTALLED_APPS += ['letters_app']\n"
    )
    told = subprocess.run(
        [sys.executable, "manage.py", "check"],
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "DJANGO_SETTINGS_MODULE": "with_mistake",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert "Traceback" not in told.stderr
    said = (
        f"{app / 'durable.py'}:8: (tasks_app.E015) greet: send: effect kind must be one of keyed, "
        "queryable, opaque: 'hopeful'"
    )
    assert said in told.stderr


class Unregistered(Workflow[Goal, int]):
    """Declared, but nobody knows it by a name."""


def test_child_by_name_is_refused_with_what_to_write() -> None:
    """A plan names code, which has a version; a name alone would be looked up by chance."""
    with pytest.raises(ConfigurationError, match=r"by its workflow's class.*'bad\.slow'"):
        plan_of(lambda self, goal, p: p.child("bad.slow", {}))


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
        lambda self, goal, p: p.child("bad.slow", {}),
        lambda self, goal, p: p.child(Unregistered, {}),
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
