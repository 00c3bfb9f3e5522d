"""Schedules fire once for each time, whoever looks and however often (issue: schedules)."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from tasks_app.admission import firing, schedules
from tasks_app.admission.schedules import Plan
from tasks_app.domain.errors import (
    InvalidInputError,
    NameTakenError,
    NotAllowedError,
    NotFoundError,
)
from tasks_app.domain.schedules import Overlap, Timing, jitter
from tasks_app.models import Membership, Schedule, Task
from tests.races.actors import together
from tests.support.engine import Engine

SAY = {"op": "say", "text": "hello"}
ASK = {"op": "interrupt", "value": "go on?"}


def make(engine: Engine, *script: dict[str, Any], **plan: Any) -> Schedule:
    wanted = {
        "name": "nightly",
        "workflow": "scripted",
        "goal": {"script": list(script or [SAY])},
        "timing": Timing(interval_seconds=3600),
        **plan,
    }
    return schedules.create_schedule(engine.submitter, Plan(**wanted))


def let_pass(schedule: Schedule, hours: float) -> None:
    """Move time by moving what the schedule counts from."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_schedule SET starts_at = starts_at - %s, due_at = due_at - %s,"
            " fires_at = fires_at - %s WHERE id = %s",
            [*[timedelta(hours=hours)] * 3, schedule.pk],  # type: ignore[list-item]
        )


def now_of(schedule: Schedule) -> Schedule:
    found: Schedule = Schedule.objects.for_tenant(schedule.tenant_id).get(pk=schedule.pk)
    return found


def tasks_of(engine: Engine) -> list[Task]:
    return list(Task.objects.for_tenant(engine.tenant.id).order_by("created_at"))


def test_time_that_has_come_starts_one_task(engine: Engine) -> None:
    """Before it nothing happens; after it there is one task, as its owner's, and a next time."""
    schedule = make(engine)
    assert firing.fire_due() == 0
    let_pass(schedule, 1.01)
    together([firing.fire_due for _ in range(4)])
    [task] = tasks_of(engine)
    assert (task.source, task.initiator_id, task.title) == (
        "schedule",
        engine.submitter.user_id,
        "nightly",
    )
    after = now_of(schedule)
    assert (after.fired, after.skipped, after.last_task_id) == (1, 0, task.id)
    assert schedule.due_at is not None
    assert after.due_at == schedule.due_at - timedelta(hours=0.01)
    assert firing.fire_due() == 0
    assert engine.drive(task.id).status == "completed"


@pytest.mark.parametrize(("limit", "started"), [(0, 0), (1, 1), (3, 3)])
def test_missed_times_are_made_up_for_as_far_as_wanted(
    engine: Engine, limit: int, started: int
) -> None:
    """After five missed times the newest ones start tasks, the others are counted as skipped."""
    schedule = make(engine, catch_up_limit=limit, overlap=Overlap.QUEUE)
    let_pass(schedule, 5.5)
    firing.fire_due()
    assert len(tasks_of(engine)) == started
    after = now_of(schedule)
    assert (after.fired, after.skipped) == (started, 5 - started)


@pytest.mark.parametrize(
    ("overlap", "statuses"),
    [
        (Overlap.SKIP, ["input_required"]),
        (Overlap.QUEUE, ["input_required", "queued"]),
        (Overlap.CANCEL_PREVIOUS, ["cancelled", "queued"]),
    ],
)
def test_task_before_has_not_ended(engine: Engine, overlap: Overlap, statuses: list[str]) -> None:
    schedule = make(engine, ASK, overlap=overlap)
    let_pass(schedule, 1.01)
    firing.fire_due()
    engine.drive(tasks_of(engine)[0].id)
    let_pass(schedule, 1.1)
    firing.fire_due()
    assert [task.status for task in tasks_of(engine)] == statuses
    assert now_of(schedule).skipped == (1 if overlap is Overlap.SKIP else 0)


def test_owner_who_may_start_nothing_any_more_pauses_it(engine: Engine) -> None:
    """A schedule has the rights of its owner now, not those of the day it was made."""
    schedule = make(engine)
    Membership.objects.for_tenant(engine.tenant.id).filter(user_id=engine.submitter.user_id).update(
        roles=["viewer"]
    )
    let_pass(schedule, 1.01)
    firing.fire_due()
    after = now_of(schedule)
    assert (tasks_of(engine), after.pause_reason) == ([], firing.REVOKED)
    assert after.paused_at is not None


def test_goal_that_does_not_fit_any_more_is_told(engine: Engine) -> None:
    """The error stands on the schedule, and the next time comes all the same."""
    schedule = make(engine)
    Schedule.objects.for_tenant(engine.tenant.id).update(goal={"script": "no list"})
    let_pass(schedule, 1.01)
    firing.fire_due()
    after = now_of(schedule)
    assert after.last_error is not None
    assert (after.last_error["code"], after.fired) == ("invalid_input", 0)
    assert after.fires_at is not None


def test_schedule_that_breaks_keeps_nobody_from_firing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of our own in one schedule is logged; the others fire, and the sweeper goes on."""
    broken, sound = make(engine), make(engine, name="sound")
    let_pass(broken, 1.02)
    let_pass(sound, 1.01)
    fire_one = firing.fire_one

    def fire(schedule: Schedule, *args: Any, **rest: Any) -> UUID | None:
        if schedule.pk == broken.pk:
            raise KeyError("a mistake")
        return fire_one(schedule, *args, **rest)

    monkeypatch.setattr(firing, "fire_one", fire)
    assert firing.fire_due() == 2
    assert [task.title for task in tasks_of(engine)] == ["sound"]
    after = now_of(broken)
    assert after.last_error is not None
    assert (after.last_error["code"], after.fired) == ("internal_error", 0)
    assert firing.fire_due() == 0


def test_paused_schedule_makes_up_for_nothing(engine: Engine) -> None:
    schedule = make(engine)
    schedules.pause_schedule(engine.operator, schedule_id=schedule.pk, reason="holidays")
    assert now_of(schedule).fires_at is None
    let_pass(schedule, 5)
    assert firing.fire_due() == 0
    schedules.resume_schedule(engine.operator, schedule_id=schedule.pk, reason="back")
    assert firing.fire_due() == 0
    assert now_of(schedule).fires_at is not None


def test_deleted_schedule_is_gone_and_its_tasks_stay(engine: Engine) -> None:
    schedule = make(engine)
    task_id = schedules.fire_now(engine.submitter, schedule_id=schedule.pk)
    schedules.delete_schedule(engine.submitter, schedule_id=schedule.pk, reason="done")
    with pytest.raises(NotFoundError):
        schedules.fire_now(engine.submitter, schedule_id=schedule.pk)
    assert isinstance(task_id, UUID)
    assert engine.drive(task_id).status == "completed"
    make(engine)


def test_rights(engine: Engine) -> None:
    """Who may not start tasks makes no schedule; another submitter does not see one."""
    with pytest.raises(NotAllowedError):
        schedules.create_schedule(
            engine.operator,
            Plan("n", "scripted", {"script": []}, Timing(cron="* * * * *")),
        )
    schedule = make(engine)
    with pytest.raises(NotFoundError):
        schedules.fire_now(engine.person("submitter"), schedule_id=schedule.pk)
    with pytest.raises(NameTakenError):
        make(engine)


@pytest.mark.parametrize(
    "plan",
    [
        {"timing": Timing(cron="61 * * * *")},
        {"timing": Timing(cron="0 0 30 2 *")},
        {"timing": Timing()},
        {"timing": Timing(cron="* * * * *", interval_seconds=5)},
        {"timing": Timing(cron="* * * * *", time_zone="Mars/Olympus")},
        {"timing": Timing(cron="* * * * *", time_zone="../../etc/passwd")},
        {"timing": Timing(interval_seconds=0)},
        {"goal": {"script": "no list"}},
        {"catch_up_limit": 101},
        {"jitter_seconds": -1},
        {"name": "two\nlines"},
    ],
)
def test_plan_that_does_not_fit_is_refused(engine: Engine, plan: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        make(engine, **plan)
    assert not Schedule.objects.for_tenant(engine.tenant.id).exists()


class TestTimes:
    """Times of an expression in its zone, and of an interval."""

    def test_clocks_that_jump(self) -> None:
        """02:30 in Berlin: at 03:00 where it does not exist, once where it exists twice."""
        timing = Timing(cron="30 2 * * *", time_zone="Europe/Berlin")
        spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
        assert timing.next_after(spring, spring) == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
        autumn = datetime(2026, 10, 24, 12, tzinfo=UTC)
        first = timing.next_after(autumn, autumn)
        assert first == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
        assert timing.next_after(first, autumn) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)

    def test_interval_keeps_its_beat(self) -> None:
        since = datetime(2026, 1, 1, tzinfo=UTC)
        timing = Timing(interval_seconds=600)
        found = timing.next_after(since + timedelta(seconds=1500), since)
        assert found == since + timedelta(seconds=1800)

    def test_jitter_is_bounded_and_the_same_for_all(self) -> None:
        due = datetime(2026, 1, 1, tzinfo=UTC)
        found = {jitter(str(number), due, 60) for number in range(50)}
        assert len(found) > 40
        assert all(timedelta() <= one < timedelta(seconds=60) for one in found)
        assert jitter("a", due, 60) == jitter("a", due, 60)
