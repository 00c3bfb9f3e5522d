"""Webhooks from any door: named by a task, or made for a whole tenant, and their secrets."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from tasks_app.admission import tenant_audit
from tasks_app.admission.keys import clean_reason
from tasks_app.admission.replays import own_transaction
from tasks_app.domain.destinations import DestinationRefusedError
from tasks_app.domain.errors import FieldProblem, InvalidInputError, NotAllowedError, NotFoundError
from tasks_app.domain.principal import Principal
from tasks_app.domain.webhooks import ROTATION_OVERLAP_HOURS, secret_of, secret_text
from tasks_app.engine.webhooks import where
from tasks_app.models import WebhookDelivery, WebhookEndpoint
from tasks_app.policy.capabilities import require


@dataclass(frozen=True, slots=True)
class EndpointSecret:
    """An endpoint with its secret, which is shown only now."""

    endpoint: WebhookEndpoint
    secret: str


def check_url(url: str, *, pointer: str = "/webhook", detail: str = "") -> None:
    """Refuse a webhook that would lead where none may. Raises: InvalidInputError."""
    try:
        where(url)
    except DestinationRefusedError as error:
        told = detail or str(error)
        problem = FieldProblem(pointer, "webhook_not_allowed", told)
        raise InvalidInputError(told, [problem]) from error


def is_allowed(url: str) -> bool:
    """Tell whether a webhook may lead there now."""
    try:
        where(url)
    except DestinationRefusedError:
        return False
    return True


def endpoint_of(tenant_id: UUID, url: str, *, by: int) -> UUID:
    """Return the endpoint that a checked URL belongs to, made if it is new.

    Transaction: the caller's. Locks: a new endpoint's row.
    """
    rows = WebhookEndpoint.objects.for_tenant(tenant_id)
    address = where(url).endpoint
    made = WebhookEndpoint(tenant_id=tenant_id, url=address, created_by_id=by)
    rows.bulk_create([made], ignore_conflicts=True)
    found: UUID = rows.values_list("pk", flat=True).get(url=address)
    return found


def create_endpoint(
    principal: Principal, *, url: str, hears_all: bool = True, request_id: str | None = None
) -> EndpointSecret:
    """Let an address hear of all tasks of the tenant, or of those that name it; return its secret.

    Transaction: its own. Locks: the endpoint; the tenant's audit stream last.
    Raises: NotAllowedError, InvalidInputError.
    """
    require(principal, "webhooks:manage")
    if principal.user_id is None:
        raise NotAllowedError("webhooks:manage", "A webhook needs a person who asks for it.")
    _check_whole(url)
    with own_transaction():
        endpoint_id = endpoint_of(principal.tenant_id, url, by=principal.user_id)
        endpoint = _locked(principal, endpoint_id)
        _change(endpoint, {"hears_all": hears_all})
        told = {"url": endpoint.url, "hears_all": hears_all}
        _record(principal, endpoint, "created", request_id, told)
    return _with_secret(principal, endpoint_id)


def rotate_secret(
    principal: Principal, *, endpoint_id: UUID, reason: str, request_id: str | None = None
) -> EndpointSecret:
    """Give an endpoint a new secret; messages carry a signature of the old one for 24 hours, too.

    Transaction: its own. Locks: the endpoint; the tenant's audit stream last.
    Raises: NotAllowedError, NotFoundError, InvalidInputError.
    """
    text = clean_reason(reason)
    require(principal, "webhooks:manage")
    with own_transaction():
        endpoint = _locked(principal, endpoint_id)
        overlap = Now() + timedelta(hours=ROTATION_OVERLAP_HOURS)
        _change(endpoint, {"secret_version": F("secret_version") + 1, "previous_until": overlap})
        _record(principal, endpoint, "rotated", request_id, {"reason": text})
    return _with_secret(principal, endpoint_id)


def disable_endpoint(
    principal: Principal, *, endpoint_id: UUID, reason: str, request_id: str | None = None
) -> WebhookEndpoint:
    """Owe an endpoint nothing more; what it is owed waits until it is enabled.

    Transaction: its own. Locks: the endpoint, its messages; the tenant's audit stream last.
    Raises: NotAllowedError, NotFoundError, InvalidInputError.
    """
    text = clean_reason(reason)
    require(principal, "webhooks:manage")
    with own_transaction():
        endpoint = _locked(principal, endpoint_id)
        if endpoint.disabled_at is None:
            _change(endpoint, {"disabled_at": Now(), "disabled_reason": text})
            _move_messages(endpoint, "pending", "held")
            _record(principal, endpoint, "disabled", request_id, {"reason": text})
    return _seen(principal, endpoint_id)


def enable_endpoint(
    principal: Principal, *, endpoint_id: UUID, reason: str, request_id: str | None = None
) -> WebhookEndpoint:
    """Let an endpoint that is off be sent to again, at once and what waited first.

    Transaction: its own. Locks: the endpoint, its messages; the tenant's audit stream last.
    Raises: NotAllowedError, NotFoundError, InvalidInputError.
    """
    text = clean_reason(reason)
    require(principal, "webhooks:manage")
    with own_transaction():
        endpoint = _locked(principal, endpoint_id)
        if endpoint.disabled_at is not None:
            on = {"disabled_at": None, "disabled_reason": "", "failures": 0, "next_try_at": None}
            _change(endpoint, on)
            _move_messages(endpoint, "held", "pending")
            _record(principal, endpoint, "enabled", request_id, {"reason": text})
    return _seen(principal, endpoint_id)


def _check_whole(url: str) -> None:
    check_url(url, pointer="/url")
    if "?" in url:
        detail = "An endpoint of a whole tenant has no query."
        raise InvalidInputError(detail, [FieldProblem("/url", "invalid_value", detail)])


def _move_messages(endpoint: WebhookEndpoint, source: str, target: str) -> None:
    rows = WebhookDelivery.objects.for_tenant(endpoint.tenant_id)
    rows.filter(endpoint_id=endpoint.pk, state=source).update(state=target, next_try_at=Now())


def _locked(principal: Principal, endpoint_id: UUID) -> WebhookEndpoint:
    rows = WebhookEndpoint.objects.for_tenant(principal.tenant_id).select_for_update(no_key=True)
    found: WebhookEndpoint | None = rows.filter(pk=endpoint_id).first()
    if found is None:
        raise NotFoundError("Not found.")
    return found


def _seen(principal: Principal, endpoint_id: UUID) -> WebhookEndpoint:
    found: WebhookEndpoint = WebhookEndpoint.objects.for_tenant(principal.tenant_id).get(
        pk=endpoint_id
    )
    return found


def _with_secret(principal: Principal, endpoint_id: UUID) -> EndpointSecret:
    endpoint = _seen(principal, endpoint_id)
    secret = secret_of(settings.SECRET_KEY, endpoint.pk, endpoint.secret_version)
    return EndpointSecret(endpoint, secret_text(secret))


def _change(endpoint: WebhookEndpoint, columns: Mapping[str, object]) -> None:
    rows = WebhookEndpoint.objects.for_tenant(endpoint.tenant_id).filter(pk=endpoint.pk)
    rows.update(**columns)


def _record(
    principal: Principal,
    endpoint: WebhookEndpoint,
    act: str,
    request_id: str | None,
    details: Mapping[str, object],
) -> None:
    target = f"webhook:{endpoint.pk}"
    tenant_audit.record(principal, f"webhook.{act}", target, request_id, details)
