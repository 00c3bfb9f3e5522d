"""Rows, constraints, indexes and named querysets; no behaviour."""

from tasks_app.models.access import AgentIdentity, ApiKey, ExternalIdentity, Membership, Tenant
from tasks_app.models.artifact import Artifact
from tasks_app.models.budget import Budget, Price, Reservation
from tasks_app.models.execution import Attempt, Checkpoint, Outbox, Slice, Step, StepRange
from tasks_app.models.journal import Event
from tasks_app.models.mcp import WithdrawnRequest
from tasks_app.models.plan import PlanVersion
from tasks_app.models.repair import Repair
from tasks_app.models.replay import KeptAnswer
from tasks_app.models.run import Run, ThreadState
from tasks_app.models.schedule import Schedule
from tasks_app.models.steering import Approval, ApprovalDecision, SteeringCommand
from tasks_app.models.task import Task, Thread
from tasks_app.models.webhook import WebhookDelivery, WebhookEndpoint

__all__ = [
    "AgentIdentity",
    "ApiKey",
    "Approval",
    "ApprovalDecision",
    "Artifact",
    "Attempt",
    "Budget",
    "Checkpoint",
    "Event",
    "ExternalIdentity",
    "KeptAnswer",
    "Membership",
    "Outbox",
    "PlanVersion",
    "Price",
    "Repair",
    "Reservation",
    "Run",
    "Schedule",
    "Slice",
    "SteeringCommand",
    "Step",
    "StepRange",
    "Task",
    "Tenant",
    "Thread",
    "ThreadState",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WithdrawnRequest",
]
