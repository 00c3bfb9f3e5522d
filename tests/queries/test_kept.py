"""Rules: a query that is kept answers like the queryset that it was made from, for everybody."""

import threading
from uuid import uuid4

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from tasks_app.admission import principal
from tasks_app.domain.errors import NotFoundError
from tasks_app.models import Task
from tasks_app.queries import kept
from tasks_app.queries.kept import KeptQuery
from tasks_app.queries.snapshot import get_snapshot
from tests import factories

pytestmark = pytest.mark.django_db


def test_snapshot_asks_the_same_question_of_everybody() -> None:
    """One kept text serves two tenants and two people, and shows each only what is theirs."""
    tasks = [factories.make_task() for _ in range(2)]
    owners = [principal.from_user(task.initiator, task.tenant_id) for task in tasks]
    strangers = [
        principal.from_user(factories.make_member(task.tenant, "submitter"), task.tenant_id)
        for task in tasks
    ]
    for task, owner in zip(tasks, owners, strict=True):
        assert get_snapshot(owner, task.id).task_id == task.id
        for other in (*strangers, *(one for one in owners if one is not owner)):
            with pytest.raises(NotFoundError):
                get_snapshot(other, task.id)
    viewer = factories.make_member(tasks[0].tenant, "viewer")
    seen = get_snapshot(principal.from_user(viewer, tasks[0].tenant_id), tasks[0].id)
    assert seen.title == tasks[0].title


def test_a_snapshot_is_one_statement() -> None:
    """Nothing is read besides."""
    task = factories.make_task()
    owner = principal.from_user(task.initiator, task.tenant_id)
    get_snapshot(owner, task.id)
    with CaptureQueriesContext(connection) as captured:
        get_snapshot(owner, task.id)
    assert len(captured) == 1


def test_nobody_sees_what_no_capability_shows() -> None:
    """A query that nobody may ask finds nothing, without asking."""
    rows = KeptQuery(Task.objects.all_tenants("a test").none().filter(id=kept.SOME_ID))
    assert rows.first({"id": uuid4()}) is None


def test_percent_signs_of_a_query_stay() -> None:
    """What is written into the text is data and no place for a value."""
    task = factories.make_task(title="100 % %(id)s done")
    rows = Task.objects.all_tenants("a test").filter(id=kept.SOME_ID, title__contains="% %(id)s")
    known = KeptQuery(rows, id=kept.SOME_ID)
    assert known.first({"id": task.id}) == task
    assert known.first({"id": uuid4()}) is None


@pytest.mark.django_db(transaction=True)
def test_each_thread_asks_on_its_own_connection() -> None:
    """The query may be made in one thread and asked in another."""
    task = factories.make_task()
    rows = Task.objects.all_tenants("a test").select_related("initiator")
    known = KeptQuery(rows.filter(id=kept.SOME_ID), id=kept.SOME_ID)
    found: list[Task | None] = []

    def ask() -> None:
        try:
            found.append(known.first({"id": task.id}))
        finally:
            connections.close_all()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [task]
    assert found[0] is not None
    assert found[0].initiator.pk == task.initiator_id
