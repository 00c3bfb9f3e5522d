"""A changed goal: what is kept, what a preview can tell, and what is stored of it (E72)."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, connection, transaction

from tasks_app.admission import commands, tasks
from tasks_app.domain.errors import InvalidInputError
from tasks_app.engine import replanning
from tasks_app.engine.replanning import MapForecast, PlanPreview
from tasks_app.models import PlanVersion, Step
from tasks_app.workflows import migrating, registry
from tests.support.engine import Engine, lines
from tests.support.versions import NAME, Deployment, Goal


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    monkeypatch.setattr(migrating, "_known", {})
    return Deployment()


def preview(engine: Engine, task_id: UUID, payload: dict[str, Any]) -> PlanPreview:
    return commands.preview_command(
        engine.operator,
        task_id=task_id,
        type="adjust_goal",
        payload=payload,
        expected_version=engine.task(task_id).state_version,
        reason="what if",
    )


def numbers(count: int, **rest: Any) -> dict[str, Any]:
    return {"op": "map", "count": count, "chunk": 5, **rest}


ASK: dict[str, Any] = {"op": "interrupt"}


def test_replan_gets_what_is_finished(engine: Engine, deployed: Deployment) -> None:
    """`replan` may build on results; each is read when it is asked for."""
    seen: list[tuple[list[str], Any]] = []

    def replan(self: Any, goal: Goal, done: Mapping[str, Any], p: Any) -> Any:
        seen.append((list(done), done["load"]))
        assert ("join" in done, len(done)) == (False, 1)
        with pytest.raises(KeyError):
            done["join"]
        p.step(self.load, done["load"])
        return p.step(self.shout, ", ".join(done["load"] + goal.words))

    deployed.install(3, replan=replan)
    task_id = tasks.admit_task(engine.submitter, workflow=NAME, goal={}, source="code").task_id
    engine.drive(task_id)
    engine.steer(task_id, "adjust_goal", payload={"words": ["four"]})
    assert engine.drive(task_id).result == "ONE, TWO, THREE, FOUR"
    assert seen == [(["load"], ["one", "two", "three"])]
    assert deployed.ran == ["load", "shout"]


def test_preview_and_command_tell_the_same_difference(engine: Engine) -> None:
    """What was shown before is what is stored afterwards."""
    task_id = engine.submit({"op": "say"}, ASK, {"op": "say"}, {"op": "say"})
    engine.drive(task_id)
    payload = {"script": [{"op": "say"}, {"op": "set", "values": {"a": 1}}, {"op": "say"}]}
    shown = preview(engine, task_id, payload)
    assert shown.difference == {
        "kept": {"count": 2, "keys": ["run", "run.3"]},
        "added": {"count": 1, "keys": ["run.2"]},
        "retired": {"count": 2, "keys": ["interrupt", "run.2"]},
    }
    command_id = uuid4()
    engine.steer(task_id, "adjust_goal", payload=payload, command_id=command_id)
    stored = PlanVersion.objects.for_tenant(engine.tenant.id).get(task_id=task_id, version=2)
    assert stored.difference == shown.difference
    assert stored.command_id == command_id
    assert engine.task(task_id).goal == shown.goal


def test_names_are_capped_and_counts_exact(engine: Engine) -> None:
    """A plan of thousands of steps has a difference that can be shown."""
    task_id = engine.submit(*[{"op": "say"}] * 3)
    shown = preview(engine, task_id, {"script": [{"op": "set", "values": {}}] * 200})
    added = shown.difference["added"]
    assert (added["count"], len(added["keys"])) == (200, 50)


def test_preview_counts_items_that_would_be_taken_over(engine: Engine, tmp_path: Any) -> None:
    """Items with the same content and arguments keep their results, and that can be told."""
    file = str(tmp_path / "ran")
    task_id = engine.submit(numbers(12, append=file), ASK)
    engine.drive(task_id)
    kept = preview(engine, task_id, {"note": "same"})
    assert kept.maps == (MapForecast("square", 12, 12),)
    unknown = preview(engine, task_id, {"script": [numbers(20, append=file)]})
    assert unknown.maps == (MapForecast("square", None, None),)
    # The list stands, the map is another one: chunk is part of what it does.
    script = [{**numbers(12, append=file), "chunk": 4}]
    shown = preview(engine, task_id, {"script": script})
    assert shown.maps == (MapForecast("square", 12, 12),)
    engine.steer(task_id, "adjust_goal", payload={"script": script})
    assert engine.drive(task_id).status == "completed"
    assert len(lines(tmp_path / "ran")) == 12


def test_preview_does_not_count_failed_or_many_items(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed items are tried again; where counting is slow, nothing is claimed."""
    task_id = engine.submit(numbers(12, fail=[3, 4]), ASK)
    engine.drive(task_id)
    script = {"script": [{**numbers(12, fail=[3, 4]), "chunk": 4}]}
    assert preview(engine, task_id, script).maps == (MapForecast("square", 12, 10),)
    monkeypatch.setattr(replanning, "_COUNTED_ITEMS", 11)
    assert preview(engine, task_id, script).maps == (MapForecast("square", 12, None),)


def test_goal_that_cannot_be_planned_for_is_refused(engine: Engine, deployed: Deployment) -> None:
    """A fault of the author's code neither ends the task nor the request in an error of ours."""

    def replan(self: Any, goal: Goal, done: Mapping[str, Any], p: Any) -> Any:
        raise LookupError("no rules")

    deployed.install(3, replan=replan)
    task_id = tasks.admit_task(engine.submitter, workflow=NAME, goal={}, source="code").task_id
    engine.drive(task_id)
    with pytest.raises(InvalidInputError, match="no rules"):
        preview(engine, task_id, {"words": ["x"]})
    done = engine.steer(task_id, "adjust_goal", payload={"words": ["x"]})
    assert (done.status, done.rejection) == ("rejected", "invalid_input")
    assert engine.task(task_id).plan_version == 1


def test_stored_plans_are_final(engine: Engine) -> None:
    """History is added to, never changed."""
    task_id = engine.submit({"op": "say"})
    engine.steer(task_id, "adjust_goal", payload={"note": "x"})
    with (
        pytest.raises(DatabaseError, match="final"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("UPDATE tasks_app_planversion SET cause = 'repair'")


def test_task_that_is_never_replanned_has_no_rows(engine: Engine) -> None:
    """Admission writes no more than before; the first replacement tells of the first plan, too."""
    task_id = engine.submit({"op": "say"}, {"op": "say"})
    rows = PlanVersion.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    assert not rows.exists()
    engine.steer(task_id, "adjust_goal", payload={"script": [{"op": "say"}]})
    first = rows.get(version=1)
    assert first.created_at == engine.task(task_id).created_at
    assert first.difference["added"] == {"count": 2, "keys": ["run", "run.2"]}
    engine.steer(task_id, "adjust_goal", payload={"note": "again"})
    assert rows.count() == 3
    steps = Step.objects.for_tenant(engine.tenant.id).filter(task_id=task_id)
    assert steps.filter(retired_in=2).count() == 1
