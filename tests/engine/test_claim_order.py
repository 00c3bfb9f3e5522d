"""E41: the tenant whose turn it is, then its most urgent task, aged; a message only prefers."""

from uuid import UUID

import pytest
from django.db import connection

from tasks_app.engine import lease
from tasks_app.models import Task
from tests import factories
from tests.support.engine import Engine

SAY = {"op": "say"}


@pytest.fixture
def other(engine: Engine) -> Engine:
    """A second tenant with people of its own."""
    return Engine()


def claim(preferred: UUID | None = None) -> UUID | None:
    """Claim and let go of the lease, so that the process can claim again; the task still runs."""
    held = lease.claim(preferred)
    if held is None:
        return None
    lease.release(held)
    return held.task.id


def claim_all() -> list[UUID]:
    return list(iter(claim, None))


def wait_since(task_id: UUID, seconds: float) -> None:
    """Move time: the task has waited for so long."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_task SET next_wake_at = clock_timestamp() - make_interval(secs => %s)"
            " WHERE id = %s",
            [seconds, task_id],
        )


def end(task_id: UUID) -> None:
    """Give a claimed task's place away; it is not due again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE tasks_app_task SET status = 'queued', lease_owner = NULL, lease_lock = NULL,"
            " lease_expires_at = NULL, next_wake_at = 'infinity' WHERE id = %s",
            [task_id],
        )


def test_urgent_before_old(engine: Engine) -> None:
    """Inside a tenant priority 0 comes before 5 before 9, and age decides between equals."""
    late = engine.submit(SAY, priority=9)
    first = engine.submit(SAY, priority=5)
    second = engine.submit(SAY, priority=5)
    urgent = engine.submit(SAY, priority=0)
    assert claim_all() == [urgent, first, second, late]


def test_waiting_makes_urgent(engine: Engine) -> None:
    """Nothing starves: who waits a minute longer counts as one priority more urgent."""
    urgent = engine.submit(SAY, priority=0)
    patient = engine.submit(SAY, priority=9)
    impatient = engine.submit(SAY, priority=9)
    wait_since(urgent, 0)
    wait_since(patient, 9 * 60 + 5)
    wait_since(impatient, 9 * 60 - 5)
    assert claim_all() == [patient, urgent, impatient]


def test_changed_priority_counts_at_once(engine: Engine) -> None:
    """P25: the old message still lies in the queue and does not decide."""
    first, second = engine.submit(SAY), engine.submit(SAY)
    engine.steer(second, "set_priority", payload={"priority": 4})
    assert claim(first) == second


def test_message_is_preferred_among_equals(engine: Engine) -> None:
    """A worker takes the task that its message names, though an equal one is a little older."""
    engine.submit(SAY)
    named = engine.submit(SAY)
    assert claim(named) == named


def test_message_is_no_order(engine: Engine) -> None:
    """An equal task that waits a minute longer is taken instead of the named one."""
    old, named = engine.submit(SAY), engine.submit(SAY)
    wait_since(old, 61)
    assert claim(named) == old


def test_message_of_a_less_urgent_task_that_aged_enough(engine: Engine) -> None:
    """The named task wins over a more urgent one that it has overtaken by waiting."""
    engine.submit(SAY, priority=4)
    named = engine.submit(SAY, priority=5)
    wait_since(named, 65)
    assert claim(named) == named


def test_tenant_comes_before_priority(engine: Engine, other: Engine) -> None:
    """A tenant gains nothing over others by calling everything urgent."""
    a = [engine.submit(SAY, priority=0) for _ in range(3)]
    b = [other.submit(SAY, priority=9) for _ in range(3)]
    order = claim_all()
    assert [task_id in a for task_id in order] in ([True, False] * 3, [False, True] * 3)
    assert set(order) == {*a, *b}


def test_tenant_comes_before_age(engine: Engine, other: Engine) -> None:
    """What waits for an hour in a full tenant does not hold up another's only task."""
    flood = [engine.submit(SAY) for _ in range(5)]
    for task_id in flood:
        wait_since(task_id, 3600)
    end(claim() or flood[0])
    single = other.submit(SAY)
    assert claim() == single


def test_named_task_waits_for_its_tenants_turn(engine: Engine, other: Engine) -> None:
    """10,000 messages of one tenant in front of another's only one do not delay it."""
    flood = [engine.submit(SAY) for _ in range(3)]
    end(claim(flood[0]) or flood[0])
    single = other.submit(SAY)
    assert claim(flood[1]) == single


def test_fewest_running_come_first(engine: Engine, other: Engine) -> None:
    """Who has less at work is served, even if it was served last."""
    a = [engine.submit(SAY) for _ in range(3)]
    b = other.submit(SAY)
    assert claim() in {*a, b}
    taken = claim_all()
    assert len(taken) == 3
    again = other.submit(SAY)
    end(b)
    assert claim(a[0]) == again


def test_weight_is_a_share_of_turns(engine: Engine, other: Engine) -> None:
    """One worker serves a tenant of weight 3 three times for each turn of another's."""
    factories.set_tenant(other.tenant, weight=3)
    b = [other.submit(SAY) for _ in range(9)]
    for _ in range(3):
        engine.submit(SAY)
    order = ""
    while (task_id := claim()) is not None:
        end(task_id)
        order += "b" if task_id in b else "a"
    # Whose turn is first is open; from then on each `a` is followed by three `b`.
    turns = order.strip("b").split("a")[1:-1]
    assert (turns, len(order)) == (["bbb", "bbb"], 12)


def test_weight_is_a_share_of_workers(engine: Engine, other: Engine) -> None:
    """Of four workers a tenant of weight 3 has three."""
    factories.set_tenant(other.tenant, weight=3)
    for _ in range(4):
        engine.submit(SAY)
        other.submit(SAY)
    taken = [claim() for _ in range(4)]
    running = Task.objects.for_tenant(other.tenant.id).filter(pk__in=taken)
    assert running.count() == 3


def test_sleeping_task_is_not_claimed(engine: Engine) -> None:
    """Neither by its turn nor by name."""
    asleep = engine.submit(SAY)
    wait_since(asleep, -3600)
    assert claim() is None
    assert claim(asleep) is None


def test_suspended_tenant_is_passed_over(engine: Engine, other: Engine) -> None:
    """Its tasks stay where they are; the other tenant's go on."""
    engine.submit(SAY)
    single = other.submit(SAY)
    factories.set_tenant(engine.tenant, status="suspended")
    assert claim_all() == [single]
