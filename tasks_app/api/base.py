"""What all REST views share: request ids, declared capabilities, input models, pages of lists."""

import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import urlencode

from django.http import HttpRequest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from typing_extensions import override

from tasks_app.admission.idempotency import HEADER, clean_key
from tasks_app.admission.replays import Kept, once
from tasks_app.api import rates
from tasks_app.api.authentication import refuse_exposed
from tasks_app.api.errors import HttpFaultError
from tasks_app.domain.errors import (
    FieldProblem,
    InvalidInputError,
    NotAllowedError,
    UnauthenticatedError,
)
from tasks_app.domain.json_text import escaped
from tasks_app.domain.principal import Principal
from tasks_app.domain.tracing import Trace, received
from tasks_app.policy.capabilities import holds, require, sight_of
from tasks_app.policy.reserved import refuse_reserved
from tasks_app.queries.paging import MAX_PAGE_SIZE, PAGE_SIZE, Page

# Marks of routes that need no capability: any principal, or nobody at all.
SIGNED_IN = "signed_in"
PUBLIC = "public"
# The header of an answer that an earlier request was given.
REPLAYED = "Idempotent-Replayed"

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CODES = {"extra_forbidden": "unknown_field", "missing": "required"}
# Bodies that hide a key are searched only when they may hold one.
_KEY_MARK = b"rtk_"

ModelT = TypeVar("ModelT", bound=BaseModel)


class Input(BaseModel):
    """A body or query: camelCase outside, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    # Keys that elsewhere name a fact of the server and here something that the caller chooses.
    OWN_KEYS: ClassVar[frozenset[str]] = frozenset()


class Output(BaseModel):
    """An answer: camelCase outside, made from dataclasses; JSON of users stays as it is."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)

    @classmethod
    def of(cls, row: Any, **more: object) -> Self:
        """Return the answer with the attributes of a row, and with what the row does not hold."""
        names = cls.model_fields.keys() - more.keys()
        values = {name: getattr(row, name) for name in names}
        return cls.model_validate({**values, **more}, from_attributes=True)


class NoQuery(Input):
    """A route that takes no query."""


class PageQuery(Input):
    """Where to go on in a list, and how many rows to return."""

    limit: int = Field(PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE, description="Rows in one answer.")
    cursor: str | None = Field(
        None, max_length=1000, description="`nextCursor` of the answer before."
    )


class JsonOnly(BaseContentNegotiation):
    """Answers JSON whatever the client says it accepts; files are not negotiated either."""

    @override
    def select_parser(self, request: Request, parsers: Iterable[Any]) -> Any:
        """Return the parser of the content type, if there is one."""
        media_type = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == media_type), None)

    @override
    def select_renderer(
        self,
        request: Request,
        renderers: Iterable[BaseRenderer],
        format_suffix: str | None = None,
    ) -> tuple[BaseRenderer, str]:
        """Return the first renderer."""
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class RuntimeView(APIView):
    """A REST view: parses, calls admission or queries, renders.

    `capabilities` names for each method what it needs; a tuple means any of them, and the function
    behind the view then asks for the exact one. `queries` names the model of the query.
    """

    capabilities: ClassVar[Mapping[str, str | tuple[str, ...]]] = {}
    query_models: ClassVar[Mapping[str, type[Input]]] = {}
    content_negotiation_class = JsonOnly
    http_method_names = ["get", "post", "head"]
    request_id = ""
    query: Input = NoQuery()

    @property
    def principal(self) -> Principal:
        """Return who acts."""
        principal: object = self.request.auth
        if not isinstance(principal, Principal):
            raise UnauthenticatedError("No valid credential.")
        return principal

    @override
    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate, then check the declared capability and the query."""
        self.request_id = request_id_of(request)
        super().initial(request, *args, **kwargs)
        if isinstance(request.auth, Principal):
            rates.charge(request._request, request.auth)  # noqa: SLF001 - Django's own request
        needed = self.capabilities.get(_method(request))
        if needed not in (None, PUBLIC, SIGNED_IN):
            self._require(needed if isinstance(needed, tuple) else (str(needed),))
        self.query = self._query(request)

    @override
    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        """Add what every answer carries."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        answer.headers["X-Request-Id"] = self.request_id or request_id_of(request)
        answer.headers.setdefault("Cache-Control", "private, no-cache")
        answer.headers.setdefault("X-Content-Type-Options", "nosniff")
        rates.tell(request._request, answer)  # noqa: SLF001 - Django's own request
        return answer

    def look_up(self) -> None:
        """Raise NotFoundError when the object of the address is not visible.

        Called only when the capability is missing, to tell 403 from 404. Routes without an object
        have nothing to look up.
        """

    def inspect_body(self, data: bytes) -> None:
        """Refuse a body with one of our keys in it (S5)."""
        if _KEY_MARK in data:
            refuse_exposed(data.decode("utf-8", "replace"))

    def body(self, model: type[ModelT]) -> ModelT:
        """Return the request's body.

        Raises:
            ReservedKeyError: it states a fact of the server.
            InvalidInputError: it does not fit the model.
        """
        data = self.request.data
        refuse_reserved(data, asked_for=model.OWN_KEYS if issubclass(model, Input) else ())
        try:
            return model.model_validate(data)
        except ValidationError as error:
            problems = field_problems(error)
            raise InvalidInputError("The body does not fit.", problems) from None

    def once(
        self,
        act: Callable[[], Response],
        *,
        hidden: Collection[str] = (),
    ) -> Response:
        """Answer as `act` does; the same request with the same Idempotency-Key is answered so again.

        `hidden` names fields of the answer that are not kept: they are null in a repeat.
        """
        key = clean_key(self.request.headers.get(HEADER))
        if key is None:
            return act()
        answers: list[Response] = []

        def kept_act() -> Kept:
            answers.append(act())
            return _kept(answers[0], hidden)

        request = {"route": self.request.path, "body": self.request.data}
        kept = once(self.principal, key=key, request=request, act=kept_act)
        return _replay(kept) if kept.replayed else answers[0]

    def query_as(self, model: type[ModelT]) -> ModelT:
        """Return the query, which was checked against the declared model."""
        if not isinstance(self.query, model):
            raise TypeError(f"{type(self).__name__} declares another query model")
        return self.query

    def page(
        self, shape: type[Output], list_rows: Callable[..., Page[Any]], *args: Any, **kwargs: Any
    ) -> Response:
        """Return one page of a list with the link to the next.

        `list_rows` is asked with the principal, `args`, and where the query says to go on.
        """
        query = self.query_as(PageQuery)
        narrowed = getattr(query, "filters", None)
        if narrowed is not None:
            kwargs["filters"] = narrowed
        try:
            found = list_rows(
                self.principal, *args, cursor=query.cursor, limit=query.limit, **kwargs
            )
        except InvalidInputError as error:
            problem = FieldProblem("?cursor", "invalid_cursor", error.message)
            raise HttpFaultError("invalid_query", error.message, (problem,)) from None
        items = [shape.of(row).model_dump(mode="json", by_alias=True) for row in found.items]
        answer = Response({"items": items, "nextCursor": found.next_cursor})
        if found.next_cursor:
            answer.headers["Link"] = f'<{self._next(found.next_cursor)}>; rel="next"'
        return answer

    def _next(self, cursor: str) -> str:
        query = {**self.request.query_params.dict(), "cursor": cursor}
        return f"{self.request.path}?{urlencode(query)}"

    def _require(self, needed: tuple[str, ...]) -> None:
        held = [name for name in needed if holds(self.principal, name)]
        if held:
            require(self.principal, held[0])
            return
        if self.principal.can(sight_of(needed[0])):
            self.look_up()
        raise NotAllowedError(needed[0])

    def _query(self, request: Request) -> Input:
        model = self.query_models.get(_method(request), NoQuery)
        given = request.query_params
        repeated = tuple(
            FieldProblem(f"?{name}", "repeated", "Given more than once.")
            for name in given
            if len(given.getlist(name)) > 1
        )
        if repeated:
            raise HttpFaultError("invalid_query", "The query does not fit.", repeated)
        try:
            return model.model_validate(given.dict())
        except ValidationError as error:
            # One of several values of a parameter is no address of its own.
            problems = tuple(
                FieldProblem(f"?{item.pointer[1:].partition('/')[0]}", item.code, item.detail)
                for item in field_problems(error)
            )
            raise HttpFaultError("invalid_query", "The query does not fit.", problems) from None


def answer(
    model: Output, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a model as JSON."""
    data = model.model_dump(mode="json", by_alias=True)
    return Response(data, status=status, headers=dict(headers or {}))


def _kept(made: Response, hidden: Collection[str]) -> Kept:
    body = made.data
    if hidden:
        body = {name: None if name in hidden else value for name, value in body.items()}
    return Kept(made.status_code, body, dict(made.headers))


def _replay(kept: Kept) -> Response:
    headers = {**kept.headers, REPLAYED: "true"}
    return Response(kept.body, status=kept.status, headers=headers)


def request_id_of(request: Request | HttpRequest) -> str:
    """Return the client's request id if it is a plain one, else a new one."""
    given = str(request.headers.get("X-Request-Id") or "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def trace_of(request: Request | HttpRequest) -> Trace | None:
    """Return the trace that a request belongs to, if it says so."""
    return received(request.headers.get("traceparent"), request.headers.get("tracestate", ""))


def field_problems(error: ValidationError) -> list[FieldProblem]:
    """Return a model's complaints with JSON pointers; values are never repeated."""
    return [
        FieldProblem(
            "".join(f"/{escaped(str(part))}" for part in item["loc"]),
            _CODES.get(item["type"], item["type"]),
            item["msg"],
        )
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def _method(request: Request) -> str:
    return "GET" if request.method == "HEAD" else str(request.method)
