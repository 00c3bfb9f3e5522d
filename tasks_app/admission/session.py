"""The principal of a browser session: pages and admin ask here, once for each request."""

from django.http import HttpRequest

from tasks_app.admission import principal as principals
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.domain.principal import Principal

TENANT_KEY = "tenant"


def find_principal(request: HttpRequest) -> Principal | None:
    """Return the signed-in person in the session's tenant; None when there is none.

    The answer is kept for this request only. A tenant that the person left is forgotten.
    """
    if not hasattr(request, "rt_principal"):
        request.rt_principal = _find(request)  # type: ignore[attr-defined]
    return request.rt_principal  # type: ignore[attr-defined,no-any-return]


def _find(request: HttpRequest) -> Principal | None:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    slug = request.session.get(TENANT_KEY)
    for choice in [slug, None] if slug else [None]:
        try:
            return principals.from_session(user, choice)
        except UnauthenticatedError:
            request.session.pop(TENANT_KEY, None)
    return None
