"""Webhook endpoints and what they were told, as admins see them; never a secret."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from tasks_app.domain.errors import NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.models import WebhookDelivery, WebhookEndpoint
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.rows import row_of


@dataclass(frozen=True, slots=True)
class EndpointFilters(Filters):
    """What a list of endpoints is narrowed to; `q` is part of the address."""

    q: str = ""
    disabled: bool | None = None

    LOOKUPS: ClassVar = {"q": "url__icontains"}
    ORDERS: ClassVar = {
        "-created": ("-created_at", "-id"),
        "created": ("created_at", "id"),
    }


@dataclass(frozen=True, slots=True)
class DeliveryFilters(Filters):
    """What a list of messages is narrowed to."""

    state: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    task_id: UUID | None = None

    LOOKUPS: ClassVar = {"state": "state__in", "status": "status__in", "task_id": "task_id"}
    ORDERS: ClassVar = {"-created": ("-id",), "created": ("id",)}


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """An endpoint; `failures` are those in a row."""

    id: UUID
    url: str
    hears_all: bool
    failures: int
    next_try_at: datetime | None
    disabled_at: datetime | None
    disabled_reason: str
    previous_until: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A message: which event of which task, and how its tries went."""

    id: int
    task_id: UUID
    seq: int
    status: str
    state: str
    tries: int
    next_try_at: datetime | None
    last_status: int | None
    last_error: str
    created_at: datetime
    settled_at: datetime | None


def list_endpoints(
    principal: Principal,
    filters: EndpointFilters = EndpointFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[EndpointRow]:
    """Return the tenant's endpoints, newest first by default."""
    rows = filters.narrow(WebhookEndpoint.objects.visible_to(principal))
    if filters.disabled is not None:
        rows = rows.filter(disabled_at__isnull=not filters.disabled)
    return filters.keyset(principal, "webhooks").page(rows, cursor, limit, endpoint_row)


def list_deliveries(
    principal: Principal,
    endpoint_id: UUID,
    filters: DeliveryFilters = DeliveryFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[DeliveryRow]:
    """Return an endpoint's messages, newest first by default. Raises: NotFoundError."""
    require_endpoint(principal, endpoint_id)
    rows = WebhookDelivery.objects.visible_to(principal).filter(endpoint_id=endpoint_id)
    pages = filters.keyset(principal, "webhook-deliveries", endpoint_id)
    return pages.page(filters.narrow(rows), cursor, limit, _delivery_row)


def require_endpoint(principal: Principal, endpoint_id: UUID) -> None:
    """Refuse an endpoint that the caller does not see. Raises: NotFoundError."""
    if not WebhookEndpoint.objects.visible_to(principal).filter(pk=endpoint_id).exists():
        raise NotFoundError("Not found.")


def endpoint_row(row: WebhookEndpoint) -> EndpointRow:
    """Return an endpoint as it is shown."""
    return row_of(EndpointRow, row)


def _delivery_row(row: WebhookDelivery) -> DeliveryRow:
    waits = row.state == "pending"
    return row_of(DeliveryRow, row, next_try_at=row.next_try_at if waits else None)
