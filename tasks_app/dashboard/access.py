"""The guard of every page: signed in, a member, allowed; and how refusals look in HTML."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.vary import vary_on_headers

from tasks_app.admission.session import find_principal
from tasks_app.domain.errors import (
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
    TenantSuspendedError,
)
from tasks_app.domain.principal import Principal
from tasks_app.policy.capabilities import require
from tasks_app.templatetags import refusals

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]
GuardedView = Callable[Concatenate[HttpRequest, Principal, P], HttpResponseBase]


def needs(capability: str) -> Callable[[GuardedView[P]], View[P]]:
    """Let a view run only for a member who holds the capability; the view gets the principal.

    The capability is readable as `view.capability`, so that a test can compare routes with the
    table of rights. Whether a single row may be touched is asked again where it is touched.
    """

    def decorate(view: GuardedView[P]) -> View[P]:
        @never_cache
        @vary_on_headers("HX-Request")
        @wraps(view)
        def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            principal = find_principal(request)
            if principal is None:
                return _not_signed_in(request)
            try:
                require(principal, capability)
                return view(request, principal, *args, **kwargs)
            except NotFoundError:
                raise Http404 from None
            except (NotAllowedError, TenantSuspendedError) as fault:
                return render(request, "403.html", {"why": refusals.say(fault)}, status=403)
            except InvalidInputError as fault:
                return render(request, "400.html", {"why": refusals.say(fault)}, status=400)

        guarded.capability = capability  # type: ignore[attr-defined]
        return cast("View[P]", guarded)

    return decorate


def is_htmx(request: HttpRequest) -> bool:
    """Tell whether a fragment is asked for."""
    return request.headers.get("HX-Request") == "true"


def _not_signed_in(request: HttpRequest) -> HttpResponseBase:
    if is_htmx(request):
        return HttpResponse(status=401)
    if request.user.is_authenticated:
        return render(request, "dashboard/no_tenant.html", status=403)
    return redirect_to_login(request.get_full_path())
