"""Tracebacks name files of the server: they are for whoever mends tasks or started them."""

from typing import Any
from uuid import uuid4

import pytest

from tasks_app.admission import principal
from tasks_app.models import Attempt, Event, Step
from tasks_app.queries.events import list_events, list_newest_events
from tasks_app.queries.slices import list_attempts
from tasks_app.queries.snapshot import get_snapshot
from tasks_app.queries.steps import list_plan, list_steps
from tests.factories import make_member, make_task, make_tenant

pytestmark = pytest.mark.django_db
ERROR = {"code": "KeyError", "message": "'a'", "trace": 'File "/srv/app/durable.py", line 5'}


@pytest.mark.parametrize(
    ("roles", "sees"),
    [
        (["operator"], True),
        (["submitter"], True),
        (["viewer"], False),
        (["approver"], False),
        (["auditor"], False),
        (["viewer", "submitter"], False),
    ],
)
def test_traceback_is_for_who_can_use_it(roles: list[str], sees: bool) -> None:
    """Everyone who may see the task reads what went wrong; few read where in the code."""
    tenant = make_tenant()
    user = make_member(tenant, roles)
    task = make_task(
        tenant=tenant, initiator=user, status="failed", error=ERROR, receipt_id=uuid4()
    )
    rows: dict[str, Any] = {"tenant": tenant, "task": task}
    step = Step.objects.create(
        **rows, key="a", position=0, kind="step", method="a", status="failed", error=ERROR,
        arguments={}, options={}, signature="x", plan_version=1, fence=1,
    )  # fmt: skip
    Attempt.objects.create(
        **rows, step=step, number=1, fence=1, error=ERROR, started_at=task.created_at
    )
    Event.objects.create(**rows, seq=1, type="log", data={"message": "failed", "facts": ERROR})
    who = principal.from_user(user, tenant.id)
    told = [
        get_snapshot(who, task.id).error,
        *(row.error for row in list_plan(who, task.id)),
        *(row.error for row in list_steps(who, task.id).items),
        *(row.error for row in list_attempts(who, task.id).items),
        *(row.data["facts"] for row in list_events(who, task.id).items),
        *(row.data["facts"] for row in list_newest_events(who, task.id).events),
    ]
    assert len(told) == 6
    assert [facts["message"] for facts in told if facts] == ["'a'"] * 6
    assert {"trace" in (facts or {}) for facts in told} == {sees}
