"""The snapshot: one query, the database's clock, and only for those who may see the task."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tasks_app.admission.principal import from_user
from tasks_app.domain.errors import NotFoundError
from tasks_app.models import Approval, SteeringCommand, Step, Tenant
from tasks_app.queries.snapshot import get_snapshot, get_version
from tests.factories import make_member, make_task, make_tenant

pytestmark = pytest.mark.django_db


def operator(tenant: Tenant) -> Any:
    return from_user(make_member(tenant, "operator"), tenant.id)


def make_step(task: Any, **values: Any) -> Step:
    return Step.objects.create(
        tenant=task.tenant, task=task, position=1, method="m", signature="s", plan_version=1,
        **values,
    )  # fmt: skip


def test_snapshot_is_one_query(django_assert_num_queries: Any) -> None:
    """Status, version, approval and question belong together, so they are read together."""
    task = make_task(
        status="working",
        lease_owner="host:a:321:tok",
        lease_expires_at=timezone.now() + timedelta(seconds=20),
        fence=4,
        progress_done=25,
        progress_total=100,
        checkpoint_seq=2,
        event_seq=9,
    )
    who = operator(task.tenant)
    with django_assert_num_queries(1):
        found = get_snapshot(who, task.id)
    assert (found.status, found.outside_status, found.seq) == ("working", "working", 9)
    assert found.progress == 0.25
    assert found.lease is not None
    assert (found.lease.owner, found.lease.pid, found.lease.fence) == ("host:a", 321, 4)
    assert 10 < found.lease.seconds_left <= 20
    assert found.last_checkpoint is not None
    assert found.last_checkpoint.seq == 2
    assert found.pending_commands == 0


def test_version_is_one_query(django_assert_num_queries: Any) -> None:
    """Polling with an ETag costs one row."""
    task = make_task(state_version=3, event_seq=7)
    who = operator(task.tenant)
    with django_assert_num_queries(1):
        assert get_version(who, task.id) == (3, 7)


def test_snapshot_shows_what_the_task_waits_for() -> None:
    """The open approval carries what a decision must repeat."""
    task = make_task(status="input_required")
    step = make_step(task, key="ok", kind="approval", status="waiting")
    approval = Approval.objects.create(
        tenant=task.tenant, task=task, step=step, tool="publish_report", arguments={"a": 1},
        args_sha256="ab" * 32, plan_version=1, policy_version=1,
        expires_at=timezone.now() + timedelta(hours=4),
    )  # fmt: skip
    SteeringCommand.objects.create(
        tenant=task.tenant, task=task, command_id=uuid.uuid4(), seq=1, type="pause",
        payload_sha256="", expected_version=1, reason="r", requested_by=task.initiator,
        source="rest", old_version=1,
    )  # fmt: skip
    found = get_snapshot(operator(task.tenant), task.id)
    assert found.open_approval is not None
    assert (found.open_approval.id, found.open_approval.version) == (approval.id, 1)
    assert found.open_approval.expires_at == approval.expires_at
    assert found.pending_commands == 1
    assert "publish_report" in found.status_message
    viewer = from_user(make_member(task.tenant, "viewer"), task.tenant_id)
    assert get_snapshot(viewer, task.id).open_approval is None


def test_snapshot_shows_the_open_question() -> None:
    """A plain question brings its prompt and the schema of the answer."""
    task = make_task(status="input_required")
    options = {"prompt": "Which year?", "schema": {"type": "integer"}}
    make_step(task, key="year", kind="question", status="waiting", options=options)
    found = get_snapshot(operator(task.tenant), task.id)
    assert found.open_question is not None
    assert found.open_question.step_key == "year"
    assert found.open_question.schema == {"type": "integer"}


def test_snapshot_of_what_is_not_visible_is_not_found() -> None:
    """Another tenant's task, another submitter's task and no task: the same error."""
    task = make_task()
    other = make_tenant()
    peer = from_user(make_member(task.tenant, "submitter"), task.tenant_id)
    for who, task_id in ((operator(other), task.id), (peer, task.id), (peer, uuid.uuid4())):
        with pytest.raises(NotFoundError, match="Not found"):
            get_snapshot(who, task_id)
        with pytest.raises(NotFoundError, match="Not found"):
            get_version(who, task_id)
