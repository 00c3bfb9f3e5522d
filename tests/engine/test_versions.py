"""Code that changes under live tasks: go, upgraded, migrated or held (E80)."""

from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from typing_extensions import override

from ledger_app.queries import list_audit_entries
from tasks_app.admission import tasks
from tasks_app.domain.errors import ConfigurationError, UnknownWorkflowError
from tasks_app.engine import lease
from tasks_app.models import Checkpoint, Event, PlanVersion, SteeringCommand, Step, Task
from tasks_app.workflows import (
    MigrationBuilder,
    OldPlan,
    StepContext,
    StepRef,
    Workflow,
    effect,
    migrates,
    migrating,
    registry,
    step,
)
from tests.support.engine import Engine
from tests.support.versions import NAME, Base, Deployment, Goal, first_plan


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    monkeypatch.setattr(migrating, "_known", {})
    return Deployment()


def admit(engine: Engine) -> UUID:
    """Return a task of the installed version that waits for its answer, one step done."""
    made = tasks.admit_task(engine.submitter, workflow=NAME, goal={}, source="code")
    assert engine.drive(made.task_id).status == "input_required"
    return made.task_id


def go_on(engine: Engine, task_id: UUID) -> Task:
    engine.steer(task_id, "provide_input", payload={"answer": {}})
    return engine.drive(task_id)


def actions(engine: Engine, task_id: UUID) -> list[str]:
    entries = list_audit_entries(tenant_id=engine.tenant.id, stream=f"task:{task_id}")
    return [entry.envelope for entry in entries]


def count_of(engine: Engine, task_id: UUID, action: str) -> int:
    return sum(f'"action":"{action}"' in envelope for envelope in actions(engine, task_id))


def steps(engine: Engine, task_id: UUID) -> dict[str, str]:
    rows = Step.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, retired_in=None)
    return dict(rows.order_by("position").values_list("key", "status"))


def other_plan(self: Any, goal: Goal, p: Any) -> Any:
    """Join with a comma instead of a blank: what is left to do differs."""
    words = p.step(self.load, goal.words)
    p.question("go_on", prompt="Go on?", answer={"type": "object"})
    return p.step(self.join, words, ", ")


# --- go ------------------------------------------------------------------------------------------
def test_equal_version_builds_no_plan(engine: Engine, deployed: Deployment) -> None:
    """E80: the same version goes on, and the check costs no plan."""
    deployed.install(3)
    task_id = admit(engine)

    def broken(self: Any, goal: Goal, p: Any) -> Any:
        raise AssertionError("the plan is stored")

    deployed.install(3, broken)
    task = go_on(engine, task_id)
    assert (task.status, task.result) == ("completed", "one two three")


@pytest.mark.parametrize("installed", [4, 2])
def test_other_version_with_the_same_plan_goes_on(
    engine: Engine, deployed: Deployment, installed: int
) -> None:
    """E80: all remaining ids and signatures equal: go, told in journal and audit."""
    deployed.install(3)
    task_id = admit(engine)
    deployed.install(installed)
    task = go_on(engine, task_id)
    assert (task.status, task.workflow_version, task.plan_version) == ("completed", installed, 1)
    assert deployed.ran == ["load", "join"]
    assert count_of(engine, task_id, "workflow.upgraded") == 1
    told = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, type="log")
    assert f"under version {installed}" in told[0].data["message"]
    engine.assert_audit_verifies(task_id)


def test_finished_steps_may_differ(engine: Engine, deployed: Deployment) -> None:
    """Only what is left to do is compared: how a finished step would be planned now is history."""

    def plan(self: Any, goal: Goal, p: Any) -> Any:
        p.step(self.load, goal.words)
        p.question("go_on", prompt="Go on?", answer={"type": "object"})
        return p.step(self.shout, "done")

    def later(self: Any, goal: Goal, p: Any) -> Any:
        p.step(self.load, ["another"])
        p.question("go_on", prompt="Go on?", answer={"type": "object"})
        return p.step(self.shout, "done")

    deployed.install(3, plan)
    task_id = admit(engine)
    deployed.install(4, later)
    assert go_on(engine, task_id).workflow_version == 4
    assert deployed.ran == ["load", "shout"]


def test_author_may_declare_versions_compatible(engine: Engine, deployed: Deployment) -> None:
    """The stored plan goes on under code that would plan otherwise, if its author says so."""
    deployed.install(3)
    task_id = admit(engine)
    deployed.install(4, other_plan, compatible_with=(2, 3))
    task = go_on(engine, task_id)
    assert (task.result, task.workflow_version) == ("one two three", 4)


def test_version_is_not_compatible_with_itself(deployed: Deployment) -> None:
    """Naming one's own version is a slip that the start finds."""
    with pytest.raises(ConfigurationError, match="compatible_with"):
        deployed.install(4, compatible_with=(4,))


# --- hold ----------------------------------------------------------------------------------------
def assert_held(task: Task, reason: str) -> dict[str, Any]:
    assert (task.status, task.stop_reason) == ("paused", "version_hold")
    assert (task.lease_owner, task.next_wake_at) == (None, None)
    assert task.error is not None
    error: dict[str, Any] = task.error
    assert (error["code"], error["reason"]) == ("version_hold", reason)
    return error


def test_other_plan_holds_the_task_until_the_code_fits(
    engine: Engine, deployed: Deployment
) -> None:
    """E80: paused with what differs, never failed; resuming asks again and loses nothing."""
    deployed.install(3)
    task_id = admit(engine)
    deployed.install(4, other_plan)
    error = assert_held(go_on(engine, task_id), "plan_differs")
    assert (error["stored"], error["installed"], error["changed"]) == (3, 4, ["join"])
    engine.steer(task_id, "resume")
    assert engine.task(task_id).stop_reason == ""
    assert_held(engine.drive(task_id), "plan_differs")
    deployed.install(3)
    engine.steer(task_id, "resume")
    task = engine.drive(task_id)
    assert (task.status, task.error, task.stop_reason) == ("completed", None, "")
    assert deployed.ran == ["load", "join"]
    assert count_of(engine, task_id, "task.dead_lettered") == 0
    engine.assert_audit_verifies(task_id)


@pytest.mark.parametrize(
    ("what", "named"), [("added", "shout"), ("missing", "join"), ("order", None), ("result", None)]
)
def test_hold_says_what_differs(
    engine: Engine, deployed: Deployment, what: str, named: str | None
) -> None:
    """A person reads which steps the new code has, lacks, or has elsewhere."""

    def plan(self: Any, goal: Goal, p: Any) -> Any:
        words = p.step(self.load, goal.words)
        p.question("go_on", prompt="Go on?", answer={"type": "object"})
        if what == "order":
            p.step(self.shout, "a")
        if what == "missing":
            return words
        joined = p.step(self.join, words, " ")
        if what == "added":
            p.step(self.shout, joined)
        return words if what == "result" else joined

    def longer(self: Any, goal: Goal, p: Any) -> Any:
        joined = first_plan(self, goal, p)
        p.step(self.shout, "a")
        return joined

    deployed.install(3, longer if what == "order" else None)
    task_id = admit(engine)
    deployed.install(4, plan)
    error = assert_held(go_on(engine, task_id), "plan_differs")
    assert error[what] == ([named] if named else "other")


def test_missing_workflow_holds_and_can_be_cancelled(engine: Engine, deployed: Deployment) -> None:
    """An installation without the workflow holds its tasks; ending one needs no code."""
    deployed.install(3)
    task_id, other = admit(engine), admit(engine)
    deployed.remove()
    error = assert_held(go_on(engine, task_id), "workflow_missing")
    assert error["installed"] is None
    engine.steer(task_id, "cancel")
    assert engine.task(task_id).status == "cancelled"
    with pytest.raises(UnknownWorkflowError):
        engine.steer(other, "adjust_goal", payload={"words": []})


def test_goal_that_the_code_does_not_take_any_more_holds(
    engine: Engine, deployed: Deployment
) -> None:
    """A changed shape of the goal is a reason to hold, with the field."""

    class NewGoal(BaseModel):
        text: str

    class NewBase(Workflow[NewGoal, Any]):
        pass

    deployed.install(3)
    task_id = admit(engine)
    deployed.install(4, base=NewBase)
    error = assert_held(go_on(engine, task_id), "goal_differs")
    assert error["problems"] == ["/goal/text: Field required"]


def test_plan_that_breaks_holds(engine: Engine, deployed: Deployment) -> None:
    """Whatever the author's new code raises, the task only waits."""

    def broken(self: Any, goal: Goal, p: Any) -> Any:
        raise KeyError("rules")

    deployed.install(3)
    task_id = admit(engine)
    deployed.install(4, broken)
    assert "rules" in assert_held(go_on(engine, task_id), "plan_failed")["message"]


@pytest.mark.parametrize("change", ["gone", "an effect now"])
def test_same_version_without_the_step_holds_when_it_is_reached(
    engine: Engine, deployed: Deployment, change: str
) -> None:
    """An unnumbered change is found where it matters; what was done before is kept."""

    def plan(self: Any, goal: Goal, p: Any) -> Any:
        words = p.step(self.load, goal.words)
        p.question("go_on", prompt="Go on?", answer={"type": "object"})
        return p.step(self.shout, p.step(self.join, words, " "))

    @effect(kind="keyed")
    def shout(self: Any, ctx: StepContext, text: str) -> str:
        return text

    deployed.install(3, plan)
    task_id = admit(engine)
    deployed.install(3, plan, shout=None if change == "gone" else shout)
    assert assert_held(go_on(engine, task_id), "step_missing")["methods"] == ["shout"]
    assert steps(engine, task_id)["join"] == "succeeded"
    newest = Checkpoint.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    assert newest.latest("seq").reason == "version_hold"
    deployed.install(3, plan)
    engine.steer(task_id, "resume")
    assert engine.drive(task_id).result == "ONE TWO THREE"
    assert deployed.ran == ["load", "join", "shout"]


@pytest.mark.parametrize(
    ("command", "status", "reason"),
    [
        ("cancel", "cancelled", "user_cancelled"),
        ("pause", "paused", ""),
        ("resume", "paused", "version_hold"),
    ],
)
def test_commands_that_wait_are_applied_before_the_hold(
    engine: Engine, deployed: Deployment, command: str, status: str, reason: str
) -> None:
    """E70: what a person asked for while a worker of the old code died is not lost."""
    deployed.install(3)
    task_id = admit(engine)
    engine.steer(task_id, "provide_input", payload={"answer": {}})
    held = lease.claim(task_id)
    assert held is not None
    engine.steer(task_id, command)
    engine.steer(task_id, "set_priority", payload={"priority": 1})
    lease.release(held)
    engine.lose_lease(task_id)
    deployed.install(4, other_plan)
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason, task.priority) == (status, reason, 1)
    assert task.steering_cursor == task.command_seq == 3
    told = SteeringCommand.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    assert set(told.values_list("status", flat=True)) == {"applied"}
    engine.assert_audit_verifies(task_id)


def test_changed_goal_takes_a_held_task_under_the_new_code(
    engine: Engine, deployed: Deployment
) -> None:
    """A new goal is a new plan, made by the code that is installed."""
    deployed.install(3)
    task_id = admit(engine)
    deployed.install(4, other_plan)
    assert_held(go_on(engine, task_id), "plan_differs")
    engine.steer(task_id, "adjust_goal", payload={"words": ["a", "b"]})
    assert engine.task(task_id).workflow_version == 4
    engine.steer(task_id, "resume")
    assert engine.drive(task_id).result == "a, b"


# --- migrate -------------------------------------------------------------------------------------
class LaterGoal(BaseModel):
    """Version 5 calls the words text."""

    text: str


class Later(Workflow[LaterGoal, Any]):
    """Version 5 has another first step, and no `load` any more."""

    ran: list[str]

    @step()
    def split(self, ctx: StepContext, text: str) -> list[str]:
        self.ran.append(ctx.step_key)
        return text.split()

    @step()
    def join(self, ctx: StepContext, words: list[str], between: str) -> str:
        self.ran.append(ctx.step_key)
        return between.join(words)

    @override
    def plan(self, goal: LaterGoal, p: Any) -> Any:
        return p.step(self.join, p.step(self.split, goal.text), "-")


def to_four(old: OldPlan, p: MigrationBuilder) -> Any:
    """Keep all but the last step, which joins by a dash now."""
    assert old.done["load"] == ["one", "two", "three"]
    for planned in old.steps:
        if planned.method != "join":
            p.keep(planned.key)
    return p.step(Later.join, StepRef("load"), "-")


def to_five(old: OldPlan, p: MigrationBuilder) -> Any:
    """Keep what version 4 has planned; the goal has another shape."""
    last = None
    for planned in old.steps:
        last = p.keep(planned.key)
    p.change_goal({"text": " ".join(old.goal.get("words", old.done["load"]))})
    return last


def test_chain_of_migrations_carries_a_task_to_the_installed_version(
    engine: Engine, deployed: Deployment
) -> None:
    """E80: plan and goal rewritten, plan_version + 1, finished steps kept, all of it told."""
    deployed.install(3)
    task_id = admit(engine)
    deployed.install(5, Later.plan, base=Later)
    migrates(NAME, 3, 4)(to_four)
    migrates(NAME, 4, 5)(to_five)
    version = engine.task(task_id).state_version
    task = go_on(engine, task_id)
    # The question's answer was stored before the slice that migrated.
    assert (task.status, task.result) == ("completed", "one-two-three")
    assert (task.workflow_version, task.plan_version) == (5, 2)
    assert task.goal == {"text": "one two three"}
    assert task.state_version > version
    assert deployed.ran == ["load", "join"]
    assert steps(engine, task_id) == {
        "load": "succeeded",
        "go_on": "succeeded",
        "join": "succeeded",
    }
    plans = PlanVersion.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    assert list(plans.order_by("version").values_list("version", "cause", "workflow_version")) == [
        (1, "admission", 3),
        (2, "migration", 5),
    ]
    assert plans.get(version=2).difference == {
        "kept": {"count": 2, "keys": ["load", "go_on"]},
        "added": {"count": 1, "keys": ["join"]},
        "retired": {"count": 1, "keys": ["join"]},
    }
    assert count_of(engine, task_id, "workflow.migrated") == 1
    engine.assert_audit_verifies(task_id)


def test_equal_plan_needs_no_migration(engine: Engine, deployed: Deployment) -> None:
    """What fits as it is goes on as it is, though a migration exists."""
    deployed.install(3)
    task_id = admit(engine)
    deployed.install(4)
    migrates(NAME, 3, 4)(to_four)
    assert go_on(engine, task_id).plan_version == 1


@pytest.mark.parametrize("fault", ["raises", "unknown step", "unfit goal", "lost reference"])
def test_migration_that_does_not_fit_holds(
    engine: Engine, deployed: Deployment, fault: str
) -> None:
    """A faulty migration changes nothing; the mended one is tried at the next resume."""

    def faulty(old: OldPlan, p: MigrationBuilder) -> Any:
        match fault:
            case "raises":
                raise RuntimeError("planned")
            case "lost reference":
                return p.keep("join")
            case "unfit goal":
                p.change_goal({"words": 3})
        return (
            p.step(Base.load, []) if fault == "unfit goal" else [p.keep(s.key) for s in old.steps]
        )

    deployed.install(3)
    task_id = admit(engine)
    deployed.install(5, Later.plan, base=Later)
    migrates(NAME, 3, 5)(faulty)
    task = go_on(engine, task_id)
    assert_held(task, "migration_failed")
    assert (task.plan_version, task.workflow_version) == (1, 3)
    assert not PlanVersion.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).exists()


def test_migration_to_a_step_that_is_not_there_holds(engine: Engine, deployed: Deployment) -> None:
    """What a migration keeps open must be in the installed code."""

    def plan(self: Any, goal: Goal, p: Any) -> Any:
        p.question("go_on", prompt="Go on?", answer={"type": "object"})
        return p.step(self.load, goal.words)

    def keep(old: OldPlan, p: MigrationBuilder) -> Any:
        p.change_goal({"text": ""})
        return [p.keep(planned.key) for planned in old.steps][-1]

    deployed.install(3, plan)
    task_id = admit(engine)
    deployed.install(5, Later.plan, base=Later)
    migrates(NAME, 3, 5)(keep)
    assert assert_held(go_on(engine, task_id), "step_missing")["methods"] == ["load"]


def test_registering_migrations_is_checked(deployed: Deployment) -> None:
    """E12: versions rise, and one pair has one migration."""
    for source, target in [(4, 3), (3, 3), (0, 1)]:
        with pytest.raises(ConfigurationError, match="later"):
            migrates(NAME, source, target)
    migrates(NAME, 3, 4)(to_four)
    with pytest.raises(ConfigurationError, match="two migrations"):
        migrates(NAME, 3, 4)(to_five)


def test_route_takes_the_longest_step_that_fits(deployed: Deployment) -> None:
    """3 to 6 goes over what is registered; without a way there is none."""
    migrates(NAME, 3, 4)(to_four)
    migrates(NAME, 3, 5)(to_five)
    migrates(NAME, 5, 6)(to_five)
    route = migrating.find_route(NAME, 3, 6)
    assert [version for version, _ in route] == [5, 6]
    assert [version for version, _ in migrating.find_route(NAME, 3, 4)] == [4]
    assert migrating.find_route(NAME, 4, 6) == []
