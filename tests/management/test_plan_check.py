"""`plan_check` tells before a deployment what becomes of every live task."""

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from tasks_app.admission import tasks
from tasks_app.engine import lease, versions
from tasks_app.workflows import MigrationBuilder, OldPlan, migrates, migrating, registry
from tests.support.engine import Engine
from tests.support.versions import NAME, Deployment, Goal, first_plan


@pytest.fixture
def engine(transactional_db: None) -> Iterator[Engine]:
    yield Engine()
    lease.stop_keeper()


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    monkeypatch.setattr(migrating, "_known", {})
    return Deployment()


def check(*arguments: str, exits: int = 0) -> str:
    output = StringIO()
    try:
        call_command("plan_check", *arguments, stdout=output)
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == exits, output.getvalue()
    return output.getvalue()


def admit(engine: Engine) -> str:
    made = tasks.admit_task(engine.submitter, workflow=NAME, goal={}, source="code")
    engine.drive(made.task_id)
    return str(made.task_id)


def shouting(self: Any, goal: Goal, p: Any) -> Any:
    return p.step(self.shout, first_plan(self, goal, p))


def test_every_live_task_gets_its_verdict(engine: Engine, deployed: Deployment) -> None:
    """E81: go, go_upgraded and migrate let the deployment pass; ended tasks are left out."""
    deployed.install(2)
    migrated = admit(engine)
    deployed.install(3)
    upgraded, ended = admit(engine), admit(engine)
    engine.steer(UUID(ended), "cancel")
    deployed.install(4)
    going = admit(engine)

    @migrates(NAME, 2, 4)
    def migration(old: OldPlan, p: MigrationBuilder) -> Any:
        return [p.keep(planned.key) for planned in old.steps][-1]

    assert check(exits=0).count("go_upgraded") == 3

    deployed.install(4, shouting, compatible_with=(3,))
    rows = {row["task"]: row for row in map(json.loads, check("--json").splitlines())}
    assert {task: row["verdict"] for task, row in rows.items()} == {
        migrated: "migrate",
        upgraded: "go_upgraded",
        going: "go",
    }
    assert (rows[migrated]["stored"], rows[migrated]["installed"]) == (2, 4)
    assert "3 live tasks: 1 go, 1 go_upgraded, 1 migrate, 0 hold" in check()


def test_held_task_stops_the_pipeline(engine: Engine, deployed: Deployment) -> None:
    """E81: exit 1, with what differs; nothing is changed by looking."""
    deployed.install(3)
    task_id = admit(engine)
    before = engine.task(UUID(task_id))
    deployed.install(4, shouting)
    assert "added: ['shout']" in check(exits=1)
    deployed.install(3, shout=None, join=None)
    assert "step_missing" in check(exits=1)
    deployed.remove()
    assert "-> missing" in check("--tenant", engine.tenant.slug, exits=1)
    after = engine.task(before.id)
    assert (after.status, after.state_version, after.event_seq) == (
        before.status,
        before.state_version,
        before.event_seq,
    )


def test_other_tenants_are_left_out(
    engine: Engine, deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--tenant` looks at one tenant, and pages miss nobody."""
    monkeypatch.setattr(versions, "_PAGE", 2)
    deployed.install(3)
    for _ in range(5):
        admit(engine)
    other = Engine()
    admit(other)
    assert "6 live tasks: 6 go" in check()
    assert "5 live tasks: 5 go" in check("--tenant", engine.tenant.slug)
    with pytest.raises(CommandError, match="no tenant"):
        check("--tenant", "nowhere")
