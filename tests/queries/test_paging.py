"""Keysets: every row once, whatever the columns tie on, and no cursor for another list."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.admission.principal import from_user
from tasks_app.domain.errors import InvalidInputError
from tasks_app.domain.principal import Principal
from tasks_app.models import Task, Tenant
from tasks_app.queries.paging import MAX_PAGE_SIZE, keyset
from tests.factories import make_member, make_task, make_tenant

pytestmark = pytest.mark.django_db

ORDERS = (
    ["id"],
    ["-id"],
    ["created_at", "id"],
    ["-created_at", "-id"],
    ["priority", "-created_at", "id"],
)


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


def reader(tenant: Tenant) -> Principal:
    return from_user(make_member(tenant, "operator"), tenant.id)


def walk(principal: Principal, order: Sequence[str], limit: int) -> list[Any]:
    """Return the ids of all pages in order."""
    keys = keyset(principal, "walk", order=order)
    seen: list[Any] = []
    cursor: str | None = None
    while True:
        rows = Task.objects.visible_to(principal)
        page = keys.page(rows, cursor, limit, lambda row: row.id)
        seen += page.items
        cursor = page.next_cursor
        if cursor is None:
            return seen


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_pages_join_to_the_whole_list(tenant: Tenant, order: list[str], limit: int) -> None:
    """Equal values in the leading columns lose no row and show none twice."""
    early, late = timezone.now(), timezone.now()
    for number in range(7):
        make_task(tenant=tenant, priority=number % 2, created_at=late if number % 3 else early)
    who = reader(tenant)
    whole = Task.objects.visible_to(who).order_by(*order).values_list("id", flat=True)
    assert walk(who, order, limit) == list(whole)


def test_page_is_one_query(tenant: Tenant, django_assert_num_queries: Any) -> None:
    """The row behind the page tells whether there is more; nothing is counted."""
    make_task(tenant=tenant)
    who = reader(tenant)
    with django_assert_num_queries(1):
        keyset(who, "walk", order=["id"]).page(Task.objects.visible_to(who), None, 50, str)


@pytest.mark.parametrize(("asked", "read"), [(0, 2), (-5, 2), (10_000, MAX_PAGE_SIZE + 1)])
def test_limit_is_kept_in_bounds(tenant: Tenant, asked: int, read: int) -> None:
    """However much is asked for, between one and MAX_PAGE_SIZE rows are shown."""
    who = reader(tenant)
    with CaptureQueriesContext(connection) as ran:
        keyset(who, "walk", order=["id"]).page(Task.objects.visible_to(who), None, asked, str)
    assert ran.captured_queries[0]["sql"].endswith(f"LIMIT {read}")


def test_cursor_opens_no_other_list(tenant: Tenant) -> None:
    """Tenant, list, filter and order are bound into the cursor (S128)."""
    task = make_task(tenant=tenant)
    who = reader(tenant)
    cursor = keyset(who, "steps", "a", order=["id"]).write(task)
    assert keyset(who, "steps", "a", order=["id"]).read(cursor) == [str(task.id)]
    others = (
        keyset(reader(make_tenant()), "steps", "a", order=["id"]),
        keyset(who, "events", "a", order=["id"]),
        keyset(who, "steps", "b", order=["id"]),
        keyset(who, "steps", "a", "", order=["id"]),
        keyset(who, "steps", "a", order=["-id"]),
    )
    for keys in others:
        with pytest.raises(InvalidInputError):
            keys.read(cursor)


def test_filters_cannot_run_into_each_other(tenant: Tenant) -> None:
    """Two filters whose texts join to the same text are still two lists."""
    who = reader(tenant)
    cursor = keyset(who, "tasks", "a:b", "c", order=["id"]).write(make_task(tenant=tenant))
    with pytest.raises(InvalidInputError):
        keyset(who, "tasks", "a", "b:c", order=["id"]).read(cursor)


def test_damaged_cursor_is_refused(tenant: Tenant) -> None:
    """What we did not sign is no place in a list."""
    with pytest.raises(InvalidInputError):
        keyset(reader(tenant), "walk", order=["id"]).read(str(uuid4()))
