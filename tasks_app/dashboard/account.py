"""Signing in and out, the active tenant, the theme, the language."""

from django.contrib.auth import views as auth
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views import i18n
from django.views.decorators.http import require_POST

from tasks_app.admission.principal import list_tenants
from tasks_app.admission.session import TENANT_KEY
from tasks_app.dashboard.context import THEME_COOKIE

_YEAR_SECONDS = 365 * 24 * 3600

sign_in = auth.LoginView.as_view(redirect_authenticated_user=True)
sign_out = auth.LogoutView.as_view()
# Keeps the chosen language in the cookie that the settings name, and leads back.
set_language = require_POST(i18n.set_language)


@require_POST
def set_tenant(request: HttpRequest) -> HttpResponse:
    """Work in another tenant that the person is a member of."""
    slug = request.POST.get("tenant", "")
    if request.user.is_authenticated and slug in {t.slug for t in list_tenants(request.user)}:
        request.session[TENANT_KEY] = slug
    return redirect("dashboard:tasks")


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Keep the chosen theme in a cookie; automatic removes it."""
    answer = HttpResponseRedirect(_back(request))
    theme = request.POST.get("theme", "")
    if theme in {"light", "dark"}:
        answer.set_cookie(
            THEME_COOKIE, theme, max_age=_YEAR_SECONDS, samesite="Lax", secure=request.is_secure()
        )
    else:
        answer.delete_cookie(THEME_COOKIE)
    return answer


def _back(request: HttpRequest) -> str:
    """Return where the form was, if that is on this site."""
    target = request.POST.get("next", "")
    allowed = url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return target if allowed else "/"
