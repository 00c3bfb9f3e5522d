"""One tenant with something of every kind, for tests that visit every route."""

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from tasks_app.models import (
    ApiKey,
    Approval,
    Artifact,
    Schedule,
    Step,
    Task,
    Tenant,
    Thread,
    WebhookEndpoint,
)
from tasks_app.tools.artifact_store import put_blob
from tests.factories import make_api_key, make_member, make_task, make_tenant

CONTENT = b"<script>alert(1)</script>"
DIGEST = "ab" * 32


@dataclass(frozen=True)
class World:
    """The rows, and the person who started the task."""

    tenant: Tenant
    owner: User
    task: Task
    approval: Approval
    artifact: Artifact
    key: ApiKey
    schedule: Schedule
    webhook: WebhookEndpoint

    def path(self, template: str) -> str:
        """Return an address with this world's ids."""
        return template.format(
            task=self.task.id,
            approval=self.approval.id,
            artifact=self.artifact.id,
            key=self.key.id,
            schedule=self.schedule.id,
            webhook=self.webhook.id,
        )


def make_world(**task: Any) -> World:
    """Return a new tenant with a task that waits for an approval, an artifact and a key."""
    tenant = make_tenant()
    owner = make_member(tenant, "submitter")
    row = make_task(tenant=tenant, initiator=owner, **{"status": "input_required", **task})
    step = make_step(row, key="approve_publish", kind="approval", status="waiting")
    blob = put_blob(tenant.id, CONTENT)
    artifact = Artifact.objects.create(
        tenant=tenant, task=row, step_key="write", name="../report.html", media_type="text/html",
        size_bytes=blob.size_bytes, sha256=blob.sha256, fence=1,
    )  # fmt: skip
    key, _ = make_api_key(tenant, owner)
    approval = make_approval(row, step)
    hook = WebhookEndpoint.objects.create(
        tenant=tenant, url="https://hooks.example.org/", created_by=owner
    )
    return World(tenant, owner, row, approval, artifact, key, make_schedule(tenant, owner), hook)


def make_schedule(tenant: Tenant, owner: User) -> Schedule:
    """Return a schedule that is never due."""
    thread = Thread.objects.create(tenant=tenant, key=f"schedule-{uuid.uuid4()}", owner=owner)
    return Schedule.objects.create(
        tenant=tenant, owner=owner, thread=thread, name="yearly", workflow="scripted",
        goal={"script": []}, cron="0 0 1 1 *", starts_at=timezone.now(),
    )  # fmt: skip


def make_step(task: Task, **values: Any) -> Step:
    """Return a step of the task's first plan."""
    defaults = {"position": 0, "method": "m", "signature": "s", "plan_version": 1}
    return Step.objects.create(tenant=task.tenant, task=task, **{**defaults, **values})


def make_approval(task: Task, step: Step, **values: Any) -> Approval:
    """Return a pending approval of the step."""
    defaults: dict[str, Any] = {
        "tool": "publish",
        "arguments": {"to": "x", "api_key": "hidden"},
        "args_sha256": DIGEST,
        "plan_version": 1,
        "policy_version": 1,
        "expires_at": timezone.now() + timedelta(hours=4),
    }
    return Approval.objects.create(
        tenant=task.tenant, task=task, step=step, **{**defaults, **values}
    )


RANDOM_IDS = {name: str(uuid.UUID(int=number)) for number, name in enumerate(
    ("task", "approval", "artifact", "key", "schedule", "webhook"), start=1
)}  # fmt: skip
