"""Webhook endpoints over REST: make, list, rotate, switch off and on, and what they were told."""

from collections.abc import Callable
from datetime import datetime
from typing import ClassVar, Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from tasks_app.admission import webhooks
from tasks_app.admission.webhooks import EndpointSecret
from tasks_app.api.base import Output, RuntimeView, answer
from tasks_app.api.documented import documented
from tasks_app.api.inputs import ReasonInput, WebhookInput
from tasks_app.api.lists import DeliveryListQuery, WebhookListQuery
from tasks_app.api.outputs import ListPage
from tasks_app.models import WebhookEndpoint
from tasks_app.queries.webhooks import endpoint_row, list_deliveries, list_endpoints

NEEDS = "webhooks:manage"
SECRET = frozenset({"secret"})


class WebhookOut(Output):
    """An address that is told of tasks; `failures` are those in a row."""

    id: UUID
    url: str
    hears_all: bool = Field(serialization_alias="allTasks")
    failures: int
    next_try_at: datetime | None
    disabled_at: datetime | None
    disabled_reason: str
    previous_until: datetime | None
    created_at: datetime


class WebhookSecretOut(WebhookOut):
    """An endpoint with its secret, which is shown this once."""

    secret: str


class WebhookPage(ListPage[WebhookOut]):
    """Endpoints, newest first."""


class DeliveryOut(Output):
    """A message: which event of which task, and how its tries went."""

    id: int
    task_id: UUID
    seq: int
    status: str
    state: Literal["pending", "delivered", "failed", "held"]
    tries: int
    next_try_at: datetime | None
    last_status: int | None
    last_error: str
    created_at: datetime
    settled_at: datetime | None


class DeliveryPage(ListPage[DeliveryOut]):
    """Messages, newest first."""


class WebhookListView(RuntimeView):
    """Who is told about the tenant's tasks."""

    capabilities: ClassVar = {"GET": NEEDS, "POST": NEEDS}
    query_models: ClassVar = {"GET": WebhookListQuery}

    @documented("listWebhooks", "List webhook endpoints", capability=NEEDS, query=WebhookListQuery,
                returns=WebhookPage)  # fmt: skip
    def get(self, request: Request) -> Response:
        """Return endpoints without their secrets, newest first."""
        return self.page(WebhookOut, list_endpoints)

    @documented(
        "createWebhook",
        "Make a webhook endpoint",
        capability=NEEDS,
        body=WebhookInput,
        returns=WebhookSecretOut,
        status=201,
        example={"url": "https://hooks.example.org/perdure"},
        keeps=True,
    )
    def post(self, request: Request) -> Response:
        """Let an address hear of tasks' ends and questions; its secret is shown this once."""
        body = self.body(WebhookInput)

        def act() -> Response:
            made = webhooks.create_endpoint(
                self.principal, url=body.url, hears_all=body.all_tasks, request_id=self.request_id
            )
            return _with_secret(made)

        return self.once(act, hidden=SECRET)


class WebhookRotateView(RuntimeView):
    """A new secret."""

    capabilities: ClassVar = {"POST": NEEDS}

    @documented("rotateWebhook", "Rotate a webhook's secret", capability=NEEDS, body=ReasonInput,
                returns=WebhookSecretOut, status=201, keeps=True)  # fmt: skip
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Make the secret that replaces the present one, which counts for 24 hours more."""
        reason = self.body(ReasonInput).reason

        def act() -> Response:
            made = webhooks.rotate_secret(
                self.principal,
                endpoint_id=webhook_id,
                reason=reason,
                request_id=self.request_id,
            )
            return _with_secret(made)

        return self.once(act, hidden=SECRET)


class WebhookDisableView(RuntimeView):
    """The end of messages."""

    capabilities: ClassVar = {"POST": NEEDS}

    @documented("disableWebhook", "Switch a webhook off", capability=NEEDS, body=ReasonInput,
                returns=WebhookOut, keeps=True)  # fmt: skip
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Send nothing more; what was owed waits."""
        return _switched(self, webhooks.disable_endpoint, webhook_id)


class WebhookEnableView(RuntimeView):
    """The return of messages."""

    capabilities: ClassVar = {"POST": NEEDS}

    @documented("enableWebhook", "Switch a webhook on", capability=NEEDS, body=ReasonInput,
                returns=WebhookOut, keeps=True)  # fmt: skip
    def post(self, request: Request, webhook_id: UUID) -> Response:
        """Send again, what waited first."""
        return _switched(self, webhooks.enable_endpoint, webhook_id)


class WebhookDeliveriesView(RuntimeView):
    """What an endpoint was told."""

    capabilities: ClassVar = {"GET": NEEDS}
    query_models: ClassVar = {"GET": DeliveryListQuery}

    @documented("listWebhookDeliveries", "List a webhook's messages", capability=NEEDS,
                query=DeliveryListQuery, returns=DeliveryPage)  # fmt: skip
    def get(self, request: Request, webhook_id: UUID) -> Response:
        """Return messages with how their tries went, newest first."""
        return self.page(DeliveryOut, list_deliveries, webhook_id)


def _switched(
    view: RuntimeView, switch: Callable[..., WebhookEndpoint], webhook_id: UUID
) -> Response:
    reason = view.body(ReasonInput).reason

    def act() -> Response:
        row = switch(
            view.principal, endpoint_id=webhook_id, reason=reason, request_id=view.request_id
        )
        return answer(WebhookOut.of(endpoint_row(row)))

    return view.once(act)


def _with_secret(made: EndpointSecret) -> Response:
    shown = WebhookSecretOut.of(endpoint_row(made.endpoint), secret=made.secret)
    return answer(shown, status=201, headers={"Cache-Control": "no-store"})
