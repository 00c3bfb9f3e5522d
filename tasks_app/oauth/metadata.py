"""Documents that clients of any origin read before they have a token."""

from collections.abc import Callable

from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    JsonResponse,
)

from tasks_app.api.base import PUBLIC
from tasks_app.oauth import resource

View = Callable[[HttpRequest], HttpResponseBase]


def for_every_origin(view: View) -> View:
    """Let pages of any origin read a view's answer, also with the protocol's own headers."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        if request.method == "OPTIONS":
            response: HttpResponseBase = HttpResponse(status=204)
            response.headers["Access-Control-Allow-Methods"] = "GET"
            response.headers["Access-Control-Allow-Headers"] = "MCP-Protocol-Version"
        elif request.method in {"GET", "HEAD"}:
            response = view(request)
        else:
            response = HttpResponseNotAllowed(["GET", "HEAD", "OPTIONS"])
        response.headers["Access-Control-Allow-Origin"] = "*"
        return response

    answer.capability = PUBLIC  # type: ignore[attr-defined]
    return answer


def _protected_resource(request: HttpRequest) -> HttpResponse:
    """Tell who gives tokens for the MCP door, and which scopes there are."""
    if not resource.has_servers():
        raise Http404
    return JsonResponse(resource.metadata())


protected_resource = for_every_origin(_protected_resource)
