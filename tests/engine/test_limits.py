"""How many tasks run at once: of the installation, a tenant, a workflow (E41)."""

from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError
from pytest_django import Settings

from runtime_project import env
from tasks_app.engine import continuation, queue
from tasks_app.models import Task, Tenant
from tests import factories
from tests.engine.test_claim_order import SAY, claim, claim_all, end
from tests.support.engine import Engine


@pytest.fixture
def other(engine: Engine) -> Engine:
    """A second tenant with people of its own."""
    return Engine()


def set_limits(settings: Settings, **limits: object) -> None:
    settings.RUNTIME = {**settings.RUNTIME, **limits}


def test_installation_has_so_many_places(engine: Engine, settings: Settings) -> None:
    """The third task waits until one of two has given its place away."""
    set_limits(settings, max_concurrent_tasks=2)
    ids = [engine.submit(SAY) for _ in range(3)]
    taken = claim_all()
    assert len(taken) == 2
    assert claim(ids[2]) is None
    end(taken[0])
    assert claim() == ids[2]


def test_full_tenant_is_passed_over(engine: Engine, other: Engine) -> None:
    """Its tasks do not stand in the way of another tenant's."""
    factories.set_tenant(engine.tenant, max_concurrent_tasks=1)
    full = [engine.submit(SAY, priority=0) for _ in range(3)]
    free = [other.submit(SAY) for _ in range(3)]
    taken = claim_all()
    assert {task_id for task_id in taken if task_id not in full} == set(free)
    assert len(taken) == 4


def test_full_workflow_is_passed_over(engine: Engine, settings: Settings) -> None:
    """Tasks of other workflows run meanwhile, though they came later."""
    ids = [engine.submit(SAY) for _ in range(3)]
    rare = set(ids[:2])
    rows = Task.objects.for_tenant(engine.tenant.id)
    rows.filter(pk__in=rare).update(workflow="rare")
    set_limits(settings, workflow_max_concurrent_tasks={"rare": 1})
    taken = claim_all()
    assert len(rare.intersection(taken)) == 1
    assert ids[2] in taken
    assert len(taken) == 2


def test_recovering_task_holds_no_place(engine: Engine, settings: Settings) -> None:
    """A dead worker's task gave its place away; it needs one again like any other."""
    set_limits(settings, max_concurrent_tasks=1)
    task_id = engine.submit(SAY)
    assert claim() == task_id
    engine.lose_lease(task_id)
    assert claim() == task_id


def test_free_place_is_offered(
    engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who ends a slice wakes a task that a limit held back: its own message has gone by."""
    set_limits(settings, max_concurrent_tasks=1)
    sent: list[tuple[UUID, str]] = []
    monkeypatch.setattr(
        continuation, "send", lambda task_id, _tenant, reason: sent.append((task_id, reason))
    )
    first, second = engine.submit(SAY), engine.submit(SAY)
    sent.clear()
    engine.run(first)
    assert sent == [(second, "place")]


def test_full_tenant_makes_nobody_share(engine: Engine, other: Engine) -> None:
    """Whoever cannot be served does not shorten others' slices; who could be, does (E47)."""
    factories.set_tenant(engine.tenant, max_concurrent_tasks=1)
    engine.submit(SAY)
    waiting = engine.submit(SAY)
    running = claim()
    assert not queue.is_anybody_waiting()
    assert queue.is_anybody_waiting(besides=running)
    other.submit(SAY)
    assert queue.is_anybody_waiting()
    assert running != waiting


@pytest.mark.django_db
@pytest.mark.parametrize("columns", [{"weight": 0}, {"weight": 101}, {"max_concurrent_tasks": 0}])
def test_database_refuses_senseless_shares(columns: dict[str, int]) -> None:
    """A weight of nothing would divide by it; a limit of nothing is a suspended tenant."""
    tenant = factories.make_tenant()
    with pytest.raises(IntegrityError):
        Tenant.objects.filter(pk=tenant.pk).update(**columns)


@pytest.mark.parametrize("text", ["review", "review=", "review=0", "review=-1", "=3", "review=x"])
def test_limits_of_workflows_are_read_strictly(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A wrong value stops the process with the variable's name."""
    monkeypatch.setenv("RUNTIME_LIMITS", text)
    with pytest.raises(ImproperlyConfigured, match="RUNTIME_LIMITS"):
        env.counts("RUNTIME_LIMITS")
    monkeypatch.setenv("RUNTIME_LIMITS", " contracts.review = 2, agent=10,")
    assert env.counts("RUNTIME_LIMITS") == {"contracts.review": 2, "agent": 10}
    with pytest.raises(ImproperlyConfigured, match=r"'contracts\.review'"):
        env.counts("RUNTIME_LIMITS", known=("agent", "review"))
