"""From stable error codes to HTTP: one table, one form (RFC 9457), for every REST route.

docs/reference/errors.md explains each code; a test compares it with this table.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.db import InterfaceError, InternalError, OperationalError
from django.http import Http404
from pydantic.alias_generators import to_camel
from rest_framework import exceptions
from rest_framework.response import Response

from tasks_app.domain.errors import (
    CommandRejectedError,
    FieldProblem,
    RepairRejectedError,
    RuntimeFault,
)

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
# A URN, not an address: the reference is a page of the documentation, wherever that is hosted.
TYPE_PREFIX = "urn:perdure:error:"


@dataclass(frozen=True, slots=True)
class Kind:
    """How one code looks over HTTP."""

    status: int
    title: str


KINDS: dict[str, Kind] = {
    "unauthenticated": Kind(401, "No valid credential"),
    "https_required": Kind(403, "Only over HTTPS"),
    "csrf_failed": Kind(403, "The request did not come from our own page"),
    "capability_required": Kind(403, "Not allowed"),
    "approval_self": Kind(403, "Nobody decides on their own request"),
    "self_grant": Kind(403, "Nobody grants a role to themselves"),
    "tenant_suspended": Kind(403, "The tenant is suspended"),
    "not_found": Kind(404, "Not found"),
    "method_not_allowed": Kind(405, "Method not allowed"),
    "invalid_json": Kind(400, "The body is not acceptable JSON"),
    "invalid_query": Kind(400, "The query is not acceptable"),
    "reserved_key": Kind(400, "A fact that only the server states"),
    "credential_in_url": Kind(400, "A credential in an address or body"),
    "payload_too_large": Kind(413, "The body is too large"),
    "unsupported_media_type": Kind(415, "The body must be application/json"),
    "invalid_input": Kind(422, "The request does not fit"),
    "unknown_workflow": Kind(422, "No such workflow"),
    "budget_required": Kind(422, "The task needs a limit of its own"),
    "budget_insufficient": Kind(409, "Not enough is left of the budget"),
    "budget_exceeded": Kind(409, "A limit of the task is used up"),
    "price_unknown": Kind(422, "There is no price for it"),
    "invalid_message": Kind(400, "A message of the input is malformed"),
    "unknown_model": Kind(400, "No such model"),
    "nothing_to_continue": Kind(422, "Nothing is left to do in the thread"),
    "no_pending_interrupt": Kind(409, "No run waits for an answer"),
    "thread_exists": Kind(409, "The thread's name is taken"),
    "name_taken": Kind(409, "The name is taken"),
    "thread_busy": Kind(409, "Another run of the thread is at work"),
    "run_active": Kind(409, "The run has not ended"),
    "run_finished": Kind(409, "The run has ended"),
    "queue_full": Kind(429, "Too many runs wait in the thread"),
    "version_required": Kind(428, "expectedVersion is missing"),
    "version_conflict": Kind(409, "The task has moved on"),
    "task_terminal": Kind(409, "The task has ended"),
    "task_closing": Kind(409, "The task is ending already"),
    "task_dead_lettered": Kind(409, "The task is held for an operator"),
    "task_not_held": Kind(409, "The task is not held"),
    "effect_in_doubt": Kind(409, "An act has to be settled first"),
    "effect_not_in_doubt": Kind(409, "No such act is open"),
    "effect_not_repeatable": Kind(409, "A second call would be a second act"),
    "no_good_checkpoint": Kind(409, "No checkpoint can be trusted"),
    "deadline_passed": Kind(409, "The task's deadline has passed"),
    "initiator_revoked": Kind(409, "Who asked for the task may not start tasks any more"),
    "repair_not_applicable": Kind(409, "The repair cannot apply now"),
    "command_not_applicable": Kind(409, "The command cannot apply now"),
    "no_open_question": Kind(409, "The task has asked nothing"),
    "schema_mismatch": Kind(409, "The answer does not fit the question"),
    "approval_changed": Kind(409, "What waits is not what was shown"),
    "approval_decided": Kind(409, "The approval is decided already"),
    "approval_digest_required": Kind(409, "The digest of what was shown is missing"),
    "idempotency_mismatch": Kind(409, "The key stands for another request"),
    "idempotency_in_progress": Kind(409, "The first request with this key is at work"),
    "last_admin": Kind(409, "The last admin stays"),
    "checkpoint_damaged": Kind(409, "The checkpoint cannot be trusted"),
    "version_hold": Kind(409, "The installed code does not fit the task"),
    "too_many_requests": Kind(429, "Too many requests"),
    "too_many_streams": Kind(429, "Too many open streams"),
    "configuration_error": Kind(500, "The installation is set up wrongly"),
    "workflow_failed": Kind(500, "The workflow's own code failed"),
    "internal_error": Kind(500, "Something went wrong"),
    "unavailable": Kind(503, "The database does not answer"),
    "issuer_unavailable": Kind(503, "The issuer of the token does not answer"),
}

_SOON_SECONDS = 1
_RETRY_SECONDS = 5
_CROWDED_SECONDS = 10


class HttpFaultError(RuntimeFault):
    """A refusal that concerns the transport only; its code is given when it is raised."""

    def __init__(
        self, code: str, message: str, errors: tuple[FieldProblem, ...] = (), **fields: object
    ) -> None:
        super().__init__(message, **fields)
        self.code = code
        self.errors = errors


def handle(error: Exception, context: Mapping[str, Any]) -> Response:
    """Return the answer for anything that a view raised; never raises itself.

    `context` is REST framework's, with the view that knows the request's id, or holds the id.
    """
    request_id = str(context.get("request_id") or getattr(context.get("view"), "request_id", ""))
    fault = _as_fault(error)
    if fault is None:
        logger.error("request.failed", exc_info=error, extra={"request_id": request_id})
        fault = RuntimeFault("The request failed; nothing was promised. Try again later.")
    body = problem(fault, request_id)
    headers = _headers(fault)
    return Response(body, status=body["status"], content_type=MEDIA_TYPE, headers=headers)


def problem(fault: RuntimeFault, request_id: str) -> dict[str, Any]:
    """Return the body that describes a fault."""
    kind = kind_of(fault)
    body: dict[str, Any] = {
        "type": TYPE_PREFIX + fault.code,
        "title": kind.title,
        "status": kind.status,
        "detail": fault.message,
        "code": fault.code,
        "requestId": request_id,
    }
    errors: tuple[FieldProblem, ...] = getattr(fault, "errors", ())
    if errors:
        body["errors"] = [
            {"pointer": item.pointer, "code": item.code, "detail": item.detail} for item in errors
        ]
    for name, value in fault.fields.items():
        key = to_camel(name)
        body["currentStatus" if key == "status" else key] = _plain(value)
    return body


def kind_of(fault: RuntimeFault) -> Kind:
    """Return how a fault looks; a code that the table lacks is a conflict or our own mistake."""
    known = KINDS.get(fault.code)
    if known is not None:
        return known
    if isinstance(fault, CommandRejectedError):
        return KINDS["command_not_applicable"]
    if isinstance(fault, RepairRejectedError):
        return KINDS["repair_not_applicable"]
    return KINDS["internal_error"]


def _as_fault(error: Exception) -> RuntimeFault | None:
    match error:
        case RuntimeFault():
            conflict = isinstance(error, CommandRejectedError | RepairRejectedError)
            return error if conflict or error.code in KINDS else None
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return HttpFaultError("unauthenticated", "No valid credential.")
        case exceptions.MethodNotAllowed():
            return HttpFaultError("method_not_allowed", "This address does not take this method.")
        case exceptions.UnsupportedMediaType():
            return HttpFaultError("unsupported_media_type", "Send the body as application/json.")
        case exceptions.PermissionDenied():
            return HttpFaultError("csrf_failed", "The request carries no valid CSRF token.")
        case Http404() | exceptions.NotFound():
            return HttpFaultError("not_found", "Not found.")
        case OperationalError() | InterfaceError() | InternalError():
            logger.error("request.unavailable", exc_info=error)
            return HttpFaultError(
                "unavailable",
                "The database does not answer; nothing was changed.",
                retry_after_seconds=_RETRY_SECONDS,
            )
        case _:
            return None


def _headers(fault: RuntimeFault) -> dict[str, str]:
    headers = {"Cache-Control": "no-store"}
    if fault.code == "unauthenticated":
        headers["WWW-Authenticate"] = "Bearer"
    if fault.code == "idempotency_in_progress":
        headers["Retry-After"] = str(_SOON_SECONDS)
    if fault.code in {"unavailable", "issuer_unavailable"}:
        headers["Retry-After"] = str(_RETRY_SECONDS)
    if kind_of(fault).status == HTTPStatus.TOO_MANY_REQUESTS:
        headers["Retry-After"] = str(fault.fields.get("retry_after_seconds", _CROWDED_SECONDS))
    return headers


def _plain(value: object) -> object:
    match value:
        case UUID():
            return str(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case _:
            return value
