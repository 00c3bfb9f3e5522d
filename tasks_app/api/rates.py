"""Requests of every REST door, counted once each; what an answer says of it."""

from collections.abc import Mapping, Sequence

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from tasks_app.admission import throttles
from tasks_app.admission.throttles import Charge
from tasks_app.domain.principal import Principal

_MARK = "perdure.charge"


def charge(request: HttpRequest, principal: Principal) -> None:
    """Count a request unless it was counted. Raises: TooManyRequestsError."""
    if _MARK in request.META:
        return
    # Marked before: who is refused is not counted again either.
    request.META[_MARK] = None
    method = str(request.method)
    rate = throttles.rate_of(method, _needed(request, method))
    request.META[_MARK] = throttles.charge(principal, rate)


def tell(request: HttpRequest, answer: HttpResponseBase) -> None:
    """Add to an answer how much is left."""
    charged: Charge | None = request.META.get(_MARK)
    if charged is not None:
        for name, value in charged.headers.items():
            answer.headers[name] = value


def _needed(request: HttpRequest, method: str) -> str | Sequence[str] | None:
    """Return the capability that the route of a request declares."""
    match = request.resolver_match
    if match is None:
        return None
    view = getattr(match.func, "view_class", match.func)
    declared: Mapping[str, str | Sequence[str]] = getattr(view, "capabilities", {})
    return declared.get("GET" if method == "HEAD" else method)
