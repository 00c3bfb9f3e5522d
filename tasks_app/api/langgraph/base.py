"""What the run door's views share: snake_case inputs, 422 for what does not fit, look-ups.

What only the server may state is dropped here and noted in the security log, not refused.
"""

import logging
from collections.abc import Mapping
from typing import Any, TypeVar, get_origin
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from tasks_app.api.base import Input, NoQuery, RuntimeView, field_problems
from tasks_app.domain.errors import InvalidInputError
from tasks_app.domain.principal import Principal
from tasks_app.policy.reserved import without_reserved
from tasks_app.queries.runs import RunHead, get_head
from tasks_app.queries.threads import ThreadRow, get_thread

security_log = logging.getLogger("security")

ModelT = TypeVar("ModelT", bound=BaseModel)


class DoorInput(Input):
    """A body or query of the run door: snake_case, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", alias_generator=None)


class DoorView(RuntimeView):
    """A view of the run door."""

    http_method_names = ["get", "post", "patch", "delete", "head"]
    schema = None

    @override
    def body(self, model: type[ModelT]) -> ModelT:
        """Return the request's body. Raises: InvalidInputError."""
        return parsed(model, self.document(), "The body")

    def document(self) -> Any:
        """Return the body as JSON, without what only the server may state."""
        return cleaned(self.request.data, self.principal)

    @override
    def _query(self, request: Request) -> Input:
        model = self.query_models.get("GET" if request.method == "HEAD" else str(request.method))
        return parsed(model or NoQuery, query_of(request.query_params, model), "The query")

    def thread(self) -> ThreadRow:
        """Return the thread of the address. Raises: NotFoundError."""
        return get_thread(self.principal, self.kwargs["thread_id"])


class ThreadObjectView(DoorView):
    """A route below one thread."""

    @override
    def look_up(self) -> None:
        """Refuse a thread that is not visible."""
        self.thread()


class RunObjectView(DoorView):
    """A route below one run, of a thread or by itself."""

    @override
    def look_up(self) -> None:
        """Refuse a run that is not visible."""
        self.run()

    def run(self) -> RunHead:
        """Return the run of the address. Raises: NotFoundError."""
        return get_head(self.principal, self.kwargs["run_id"], self.kwargs.get("thread_id"))


def parsed(model: type[ModelT], value: Any, what: str) -> ModelT:
    """Return a model of a value. Raises: InvalidInputError, naming what does not fit in one line."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = field_problems(error)
        told = "; ".join(f"{item.pointer.lstrip('/')}: {item.detail}" for item in problems[:3])
        raise InvalidInputError(f"{what} does not fit. {told}", problems) from None


def query_of(given: Any, model: type[BaseModel] | None) -> dict[str, Any]:
    """Return a query's values; those that the model holds as a list may be repeated."""
    fields: Mapping[str, Any] = model.model_fields if model is not None else {}
    return {
        name: given.getlist(name)
        if name in fields and get_origin(fields[name].annotation) is list
        else given.get(name)
        for name in given
    }


def cleaned(value: Any, principal: Principal) -> Any:
    """Return JSON without keys that name facts of the server; how many there were is logged."""
    kept, dropped = without_reserved(value)
    if dropped:
        security_log.warning(
            "request.reserved_keys_dropped",
            extra={
                "tenant_id": str(principal.tenant_id),
                "actor": principal.actor,
                "keys": dropped,
            },
        )
    return kept


def located(answer: Response, thread_key: str, run_id: UUID) -> Response:
    """Return an answer that says where its run is, from the clients' base address on."""
    answer.headers["Content-Location"] = run_place(thread_key, run_id)
    return answer


def run_place(thread_key: str, run_id: UUID) -> str:
    """Return a run's place below the base address that clients were given (R9)."""
    return f"/threads/{thread_key}/runs/{run_id}"
