"""Open requests as an MCP client may show them to its person, and what the answers become."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin
from uuid import UUID, uuid4

from django.conf import settings
from django.urls import reverse
from jsonschema import Draft202012Validator

from tasks_app.admission import approvals, commands, mcp_requests
from tasks_app.domain.errors import (
    ApprovalChangedError,
    ApprovalDecidedError,
    CommandRejectedError,
    TaskTerminalError,
    VersionConflictError,
)
from tasks_app.domain.principal import Principal
from tasks_app.queries.requests import OpenRequest, list_requests
from tasks_app.queries.snapshot import TaskSnapshot
from tasks_app.workflows import registry

Json = dict[str, Any]

FORM, URL = "form", "url"
_FLAT = frozenset({"string", "number", "integer", "boolean"})
# The only field of an answer that is no object by itself.
_VALUE = "answer"

# Somebody else was faster: what the client answers is not asked any more.
_OVERTAKEN = (
    ApprovalChangedError,
    ApprovalDecidedError,
    CommandRejectedError,
    TaskTerminalError,
    VersionConflictError,
)


@dataclass(frozen=True, slots=True)
class Offer:
    """One request in the client's form; `request` is method and params."""

    key: str
    request: Json
    opened: OpenRequest
    mode: str


def list_offers(principal: Principal, snapshot: TaskSnapshot) -> list[Offer]:
    """Return what this caller can be asked now, in any mode."""
    offers = [_offer(request) for request in list_requests(principal, snapshot)]
    return [offer for offer in offers if offer is not None]


def in_modes(offers: Iterable[Offer], modes: Collection[str]) -> list[Offer]:
    """Return the offers that a client can show, by the modes that it knows."""
    return [offer for offer in offers if offer.mode in modes]


def check(offer: Offer, response: Any) -> list[str]:
    """Return what is wrong with an answer; nothing when it can be applied."""
    if not isinstance(response, Mapping):
        return ["an object with action"]
    action = response.get("action")
    if action not in {"accept", "decline", "cancel"}:
        return ["action is accept, decline or cancel"]
    if action != "accept" or offer.mode == URL:
        return []
    content = response.get("content")
    if not isinstance(content, Mapping):
        return ["content is an object"]
    schema = offer.request["params"]["requestedSchema"]
    errors = Draft202012Validator(schema).iter_errors(_known(schema, content))
    return [error.message[:300] for error in errors]


def apply(principal: Principal, offer: Offer, response: Mapping[str, Any]) -> None:
    """Apply an answer that was checked; what somebody else has answered meanwhile stays so.

    Transaction: that of the command or decision. Raises: what those raise.
    """
    action = response["action"]
    if action == "cancel":
        opened = offer.opened
        mcp_requests.withdraw(principal, task_id=opened.task_id, key=opened.key)
        return
    if offer.mode == URL:
        # The person has opened the page, or has not; the decision is taken there.
        return
    try:
        if offer.opened.args_sha256:
            _decide(principal, offer, response)
        elif action == "accept":
            _answer(principal, offer, response)
        else:
            mcp_requests.withdraw(principal, task_id=offer.opened.task_id, key=offer.key)
    except _OVERTAKEN:
        return


def _answer(principal: Principal, offer: Offer, response: Mapping[str, Any]) -> None:
    schema = offer.request["params"]["requestedSchema"]
    content = _known(schema, response["content"])
    wrapped = offer.opened.schema.get("type") != "object"
    commands.submit_command(
        principal,
        task_id=offer.opened.task_id,
        command_id=uuid4(),
        type="provide_input",
        payload={"answer": content.get(_VALUE) if wrapped else content},
        expected_version=offer.opened.version,
        reason="answer of an MCP client",
        source="mcp",
    )


def _decide(principal: Principal, offer: Offer, response: Mapping[str, Any]) -> None:
    agreed = response["action"] == "accept" and response["content"]["approve"] is True
    approvals.decide_approval(
        principal,
        approval_id=UUID(offer.opened.id),
        decision="approve" if agreed else "deny",
        args_sha256=offer.opened.args_sha256,
        expected_version=offer.opened.version,
        reason="decision through an MCP client",
        source="mcp",
    )


def _offer(request: OpenRequest) -> Offer | None:
    if not request.args_sha256:
        form = _form(request.schema)
        if form is None:
            return None
        params = {"mode": FORM, "message": request.prompt, "requestedSchema": form}
        return Offer(request.key, _elicitation(params), request, FORM)
    definition = registry.find_definition(request.workflow)
    how = "url" if definition is None else definition.mcp.approval
    if how == "never":
        return None
    if how == URL:
        page = reverse("dashboard:approval", args=[request.id])
        url = urljoin(settings.MCP_RESOURCE_URL, page)
        params = {
            "mode": URL,
            "message": f"Approve {request.prompt}: decide on the page.",
            "url": url,
            "elicitationId": request.key,
        }
        return Offer(request.key, _elicitation(params), request, URL)
    return Offer(request.key, _elicitation(_approval_form(request)), request, FORM)


def _approval_form(request: OpenRequest) -> Json:
    shown = "\n".join(f"{name}: {value}" for name, value in request.schema.items())
    return {
        "mode": FORM,
        "message": f"Approve {request.prompt}?\n{shown}"[:4000],
        "requestedSchema": {
            "type": "object",
            "properties": {
                "approve": {"type": "boolean", "title": "Approve"},
                "digest": {
                    "type": "string",
                    "enum": [request.args_sha256],
                    "title": "Digest of what is shown",
                },
            },
            "required": ["approve", "digest"],
        },
    }


def _elicitation(params: Json) -> Json:
    return {"method": "elicitation/create", "params": params}


def _form(schema: Mapping[str, Any]) -> Json | None:
    """Return a question's schema as one flat object; None when no form can hold an answer."""
    if schema.get("type") != "object":
        wrapped = dict(schema) or {"type": "string"}
        if wrapped.get("type") not in _FLAT:
            return None
        return {"type": "object", "properties": {_VALUE: wrapped}, "required": [_VALUE]}
    properties = schema.get("properties") or {}
    if not all(
        isinstance(one, Mapping) and one.get("type") in _FLAT for one in properties.values()
    ):
        return None
    kept = {name: schema[name] for name in ("properties", "required") if name in schema}
    return {"type": "object", "properties": {}, **kept}


def _known(schema: Mapping[str, Any], content: Mapping[str, Any]) -> Json:
    """Drop what was not asked: clients send more."""
    return {name: value for name, value in content.items() if name in schema["properties"]}
