"""Refuses requests with text that PostgreSQL cannot store: U+0000 in an address, form or cookie.

Bodies of REST are read by its own parser, which does the same (S124).
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from tasks_app.api.base import request_id_of
from tasks_app.api.errors import MEDIA_TYPE, HttpFaultError, problem
from tasks_app.domain.errors import FieldProblem

_NUL = "\x00"
# Programs speak here: they get a problem document, and their bodies are not forms.
_PROGRAMS = ("/runtime/", "/stream/")

Answer = HttpResponseBase | Awaitable[HttpResponseBase]


class ReadableTextMiddleware:
    """Answers 400 before a view sees such text; a cookie that holds it counts as not sent."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Answer]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Answer:
        """Drop unreadable cookies: none of ours holds such text, and the session reads its own."""
        for name in [name for name, value in request.COOKIES.items() if _NUL in value]:
            del request.COOKIES[name]
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponse | None:
        """Refuse a path, query or form that holds such text, or a query of too many fields."""
        try:
            found = next(_pointers(request), None)
        except SuspiciousOperation:
            found = "?"
        return None if found is None else _refuse(request, found)


def _pointers(request: HttpRequest) -> Iterator[str]:
    """Return where such text stands: the name of a field, or nothing for the path."""
    if _NUL in request.path_info:
        yield ""
    yield from (f"?{name}" for name in _unreadable(request.GET.lists()))
    if request.method == "POST" and not request.path_info.startswith(_PROGRAMS):
        yield from (f"/{name}" for name in _unreadable(request.POST.lists()))


def _unreadable(fields: Iterable[tuple[str, list[Any]]]) -> Iterator[str]:
    for name, values in fields:
        if _NUL in name or any(_NUL in str(value) for value in values):
            yield name.replace(_NUL, "\N{REPLACEMENT CHARACTER}")


def _refuse(request: HttpRequest, pointer: str) -> HttpResponse:
    if not request.path_info.startswith(_PROGRAMS):
        why = _("The address or form holds text that cannot be read (U+0000).")
        return render(request, "400.html", {"why": why}, status=400)
    found = FieldProblem(pointer, "invalid_text", "Text with U+0000, or too many fields.")
    fault = HttpFaultError("invalid_query", "The query does not fit.", (found,))
    request_id = request_id_of(request)
    answer = JsonResponse(problem(fault, request_id), status=400, content_type=MEDIA_TYPE)
    answer.headers["X-Request-Id"] = request_id
    answer.headers["Cache-Control"] = "no-store"
    return answer
