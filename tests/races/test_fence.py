"""A slice whose fence is old: each of the engine's ways to write leaves every row as it was."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from django.db import transaction
from pytest_django import Settings

from runtime_project.local.processes import wait_until
from tasks_app.domain.errors import LeaseLost
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import (
    delivery,
    effect_runner,
    lease,
    map_runner,
    outage,
    recovery_record,
    slice_runner,
    steering,
    step_runner,
    transitions,
    waits,
)
from tasks_app.engine.session import SliceSession
from tasks_app.engine.step_context import RunningStep
from tasks_app.models import Step
from tasks_app.workflows.scripted import Scripted
from tests.support import evidence
from tests.support.engine import Engine, lines


@dataclass
class Stale:
    """A slice that was overtaken and does not know it yet."""

    engine: Engine
    session: SliceSession
    acts: Path

    def anew(self) -> "Stale":
        """Return the same slice with nothing in its hands, as ignorant as before."""
        held = replace(self.session.lease, lost=False)
        return replace(self, session=SliceSession(held, Scripted))

    def step(self, kind: str) -> Step:
        rows = Step.objects.for_tenant(self.engine.tenant.id).order_by("position")
        found: Step = rows.filter(task_id=self.session.task.id, kind=kind, status="planned")[0]
        return found

    def context(self) -> RunningStep:
        return RunningStep(self.session, self.step("step"))


@pytest.fixture
def stale(engine: Engine, settings: Settings, tmp_path: Path) -> Stale:
    """One step is done under the first fence; the second was overtaken by the third."""
    # No renewal comes by itself while the lease is made to look lost.
    settings.RUNTIME = {**settings.RUNTIME, "slice_steps": 1, "heartbeat_seconds": 600.0}
    acts = tmp_path / "acts"
    task_id = engine.submit(
        {"op": "map", "count": 30},
        {"op": "effect", "key": "act", "append": str(acts)},
        {"op": "effect", "key": "asked", "append": str(acts), "approve": True},
        {"op": "interrupt"},
        {"op": "sleep", "s": 60},
        {"op": "say"},
    )
    assert engine.run(task_id) == "slice_spent"
    old = lease.claim(task_id)
    assert old is not None
    session = SliceSession(old, Scripted)
    engine.lose_lease(task_id)
    newer = lease.claim(task_id)
    assert newer is not None
    assert newer.task.fence > old.task.fence
    # Its own clock says that all is well: only the fence in the rows can stop it.
    assert old.remaining_seconds > 10
    return Stale(engine, session, acts)


def commit_a_result(stale: Stale) -> None:
    stale.session.hold_result(stale.step("step"), "succeeded", result={"inline": 1})
    stale.session.hold_event("log", {"message": "I was here"})
    stale.session.commit(checkpoint="policy")


def tell_progress(stale: Stale) -> None:
    stale.session.commit_progress()


def store_an_artifact(stale: Stale) -> None:
    stale.context().artifact("a.txt", "text", "text/plain")


def store_items(stale: Stale) -> None:
    stale.context().items("rows", [{"n": 1}])


def report_progress(stale: Stale) -> None:
    stale.context().progress(1, 2)


def run_a_step(stale: Stale) -> None:
    step_runner.run_step(stale.session, stale.step("step"))
    stale.session.commit()


def run_a_map(stale: Stale) -> None:
    map_runner.run_map(stale.session, stale.step("map"))


def run_an_effect(stale: Stale) -> None:
    effect_runner.run_effect(stale.session, stale.step("effect"))


def ask_for_approval(stale: Stale) -> None:
    waits.run_approval(stale.session, stale.step("approval"))


def ask_a_question(stale: Stale) -> None:
    waits.run_question(stale.session, stale.step("question"))


def sleep(stale: Stale) -> None:
    waits.run_sleep(stale.session, stale.step("sleep"))


def record_a_failed_try(stale: Stale) -> None:
    step = stale.step("step")
    declared = stale.session.definition.step_definition(step.method)
    step_runner.fail_try(stale.session, step, declared, RuntimeError("no"))


def complete(stale: Stale) -> None:
    delivery.complete_task(stale.session, None)


def fail(stale: Stale) -> None:
    task = stale.session.task
    with transaction.atomic():
        delivery.close(
            task.tenant_id, task.id, TaskStatus.WORKING, TaskStatus.FAILED, fence=task.fence
        )


def hand_on(stale: Stale) -> None:
    task = stale.session.task
    with transaction.atomic():
        transitions.hand_on(task.id, task.tenant_id, fence=task.fence, wake_at=None, reason="x")


def await_a_person(stale: Stale) -> None:
    task = stale.session.task
    with transaction.atomic():
        transitions.await_person(task.id, task.tenant_id, fence=task.fence, event={}, wake_at=None)


def dead_letter(stale: Stale) -> None:
    effect_runner.dead_letter(stale.session, stale.step("effect"), "code", "message")


def apply_commands(stale: Stale) -> None:
    steering.apply_pending(stale.session)


def record_a_recovery(stale: Stale) -> None:
    recovery_record.write(stale.session, None)


WRITES: list[Callable[[Stale], None]] = [
    commit_a_result,
    tell_progress,
    store_an_artifact,
    store_items,
    report_progress,
    run_a_step,
    run_a_map,
    run_an_effect,
    ask_for_approval,
    ask_a_question,
    sleep,
    record_a_failed_try,
    complete,
    fail,
    hand_on,
    await_a_person,
    dead_letter,
    apply_commands,
    record_a_recovery,
]


def ending_of(write: Callable[[Stale], None], stale: Stale) -> type[BaseException] | None:
    """Return what a write ended with."""
    try:
        write(stale)
    except BaseException as error:  # noqa: BLE001 - signals of the engine are no Exceptions
        return type(error)
    return None


def test_stale_fence_writes_nothing(stale: Stale) -> None:
    """Each write ends the slice, and no row of the task and its ledger differs (E3)."""
    before = evidence.rows_of(stale.session.task.id)
    for write in WRITES:
        assert ending_of(write, stale.anew()) is LeaseLost, write.__name__
        assert evidence.rows_of(stale.session.task.id) == before, write.__name__
    assert lines(stale.acts) == []


def test_stale_lease_is_neither_renewed_nor_given_up(stale: Stale, settings: Settings) -> None:
    """Renewal is refused and says so; an error of the old owner does not end the new one's lease."""
    held = stale.session.lease
    # From here on nobody renews the newer lease, however soon the keeper looks.
    lease.keeper().keep(held)
    settings.RUNTIME = {**settings.RUNTIME, "heartbeat_seconds": 0.05}
    before = evidence.rows_of(held.task.id)
    lease.keeper().keep(held)
    assert wait_until(lambda: held.lost, seconds=10)
    outage.give_up(held, failed=True)
    assert evidence.rows_of(held.task.id) == before


def test_overtaken_slice_ends_as_lost(stale: Stale, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the outside a slice that lost its task is no error: somebody else works on it."""
    before = evidence.rows_of(stale.session.task.id)
    monkeypatch.setattr(lease, "claim", lambda preferred: stale.session.lease)
    assert slice_runner.run_slice(stale.session.task.id) == "lost"
    assert evidence.rows_of(stale.session.task.id) == before
