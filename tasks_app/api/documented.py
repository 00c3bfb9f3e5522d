"""How a view describes itself in OpenAPI: capability, codes, query, body, answer, example.

docs/reference/openapi.yaml is written from this (UPDATE_REFERENCE=1, tests/api/test_reference.py).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, TypeVar

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
)
from pydantic import BaseModel
from typing_extensions import override

from tasks_app.admission.idempotency import HEADER
from tasks_app.api.base import SIGNED_IN
from tasks_app.api.errors import KINDS, MEDIA_TYPE

F = TypeVar("F", bound=Callable[..., Any])

_ALWAYS = (
    "unauthenticated",
    "https_required",
    "credential_in_url",
    "invalid_query",
    "too_many_requests",
    "unavailable",
)
_WITH_BODY = (
    "invalid_json",
    "reserved_key",
    "payload_too_large",
    "unsupported_media_type",
    "invalid_input",
    "csrf_failed",
    "tenant_suspended",
)


def documented(
    operation_id: str,
    summary: str,
    *,
    capability: str,
    returns: type[BaseModel] | type[bytes | str] | None,
    status: int = 200,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    codes: tuple[str, ...] = (),
    example: Mapping[str, Any] | None = None,
    replays: bool = False,
    replay_status: int | None = None,
    keeps: bool = False,
    etag: bool = False,
    previews: type[BaseModel] | None = None,
) -> Callable[[F], F]:
    """Describe one method of a view; its docstring becomes the description.

    `codes` are those beyond what every such operation can answer; `replays` marks operations that
    take an Idempotency-Key, `keeps` those whose answer is kept for it, and `replay_status` a replay's
    own status; `previews` is the answer to a dry run. Answers of
    bytes are files, answers of text are event streams.
    """

    def decorate(method: F) -> F:
        mismatch = ("idempotency_mismatch",) if replays or keeps else ()
        progress = ("idempotency_in_progress",) if keeps else ()
        needed = (*codes, *mismatch, *progress)
        found = _codes(method, capability, needed, has_body=body is not None)
        parameters = [*_query_parameters(query), *_headers(replays=replays or keeps, etag=etag)]
        decorated: F = extend_schema(
            operation_id=operation_id,
            summary=summary,
            description=_description(method, capability, found),
            parameters=parameters,
            request=body,
            responses={
                **_responses(returns, status, found, replay_status=replay_status, etag=etag),
                **({200: OpenApiResponse(previews, description="Dry run.")} if previews else {}),
            },
            examples=[OpenApiExample("Example", value=dict(example), request_only=True)]
            if example
            else None,
            tags=[_tag(operation_id)],
            extensions={"x-capability": capability, "x-error-codes": sorted(found)},
        )(method)
        return decorated

    return decorate


def _codes(
    method: Callable[..., Any], capability: str, codes: tuple[str, ...], *, has_body: bool
) -> set[str]:
    found = {*_ALWAYS, *codes}
    if capability != SIGNED_IN:
        found.add("capability_required")
    if len(signature(method).parameters) > len(("self", "request")):
        found.add("not_found")
    if has_body:
        found.update(_WITH_BODY)
    return found


def _description(method: Callable[..., Any], capability: str, codes: set[str]) -> str:
    first = (method.__doc__ or "").strip()
    needs = "any valid credential" if capability == SIGNED_IN else f"`{capability}`"
    listed = ", ".join(f"`{code}`" for code in sorted(codes))
    return f"{first}\n\nNeeds {needs}.\n\nError codes: {listed}."


def _responses(
    returns: type[BaseModel] | type[bytes | str] | None,
    status: int,
    codes: set[str],
    *,
    replay_status: int | None,
    etag: bool,
) -> dict[Any, Any]:
    good: Any = returns
    key: Any = status
    if returns is bytes:
        good, key = OpenApiTypes.BINARY, (status, "application/octet-stream")
    elif returns is str:
        good, key = OpenApiTypes.STR, (status, "text/event-stream")
    responses: dict[Any, Any] = {key: OpenApiResponse(good, description="Done.")}
    if replay_status is not None:
        responses[replay_status] = OpenApiResponse(
            good, description="Replay of an earlier request."
        )
    if etag:
        responses[304] = OpenApiResponse(None, description="Nothing changed.")
    by_status: dict[int, list[str]] = defaultdict(list)
    for code in sorted(codes):
        by_status[KINDS[code].status].append(code)
    for number, names in sorted(by_status.items()):
        responses[number, MEDIA_TYPE] = OpenApiResponse(_problem(), description=", ".join(names))
    return responses


def _problem() -> type[BaseModel]:
    from tasks_app.api.outputs import Problem

    return Problem


def _query_parameters(query: type[BaseModel] | None) -> list[OpenApiParameter]:
    if query is None:
        return []
    schema = query.model_json_schema()
    definitions = schema.get("$defs", {})
    return [
        OpenApiParameter(
            name,
            _resolved(field, definitions),
            OpenApiParameter.QUERY,
            description=field.get("description", ""),
            # Several values stand between commas.
            style="form" if field.get("type") == "array" else None,
            explode=False if field.get("type") == "array" else None,
        )
        for name, field in schema["properties"].items()
    ]


def _resolved(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field's schema without references and without null: a query key is just left out."""
    options = [option for option in field.get("anyOf", [field]) if option.get("type") != "null"]
    option = dict(options[0])
    reference = option.pop("$ref", "")
    if reference:
        option = dict(definitions[reference.rpartition("/")[2]])
    hidden = {"title", "description", "anyOf", "default"}
    kept = {name: value for name, value in option.items() if name not in hidden}
    if field.get("default") not in (None, "", []):
        kept["default"] = field["default"]
    return kept


def _headers(*, replays: bool, etag: bool) -> list[OpenApiParameter]:
    headers = []
    if replays:
        text = "1 to 255 printable characters; the same key gives back the first answer."
        headers.append(OpenApiParameter(HEADER, str, OpenApiParameter.HEADER, description=text))
    if etag:
        text = "The ETag of an earlier answer: 304 when nothing changed."
        headers.append(
            OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER, description=text)
        )
    return headers


def _tag(operation_id: str) -> str:
    for word, tag in (
        ("Approval", "approvals"),
        ("epair", "repairs"),
        ("Held", "repairs"),
        ("Key", "keys"),
        ("Artifact", "artifacts"),
    ):
        if word in operation_id:
            return tag
    return "installation" if operation_id in {"whoAmI", "listWorkflows"} else "tasks"


class _Credentials(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Names the three ways to authenticate."""

    target_class = "tasks_app.api.authentication.PrincipalAuthentication"
    name = ["bearer", "apiKey", "session"]

    @override
    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[str]]]:
        return [{name: []} for name in self.name]

    @override
    def get_security_definition(self, auto_schema: Any) -> list[dict[str, str]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key."},
            {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            {
                "type": "apiKey",
                "in": "cookie",
                "name": "session",
                "description": "The browser's session; writes need X-CSRFToken.",
            },
        ]
