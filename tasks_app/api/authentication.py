"""Which credential a request carries, and whose it is. What it may do is asked elsewhere.

Keys come as `Authorization: Bearer …` or `X-Api-Key: …`; browsers use the session with a CSRF token.
A key anywhere else is refused and, when genuine, ended (security S5).
"""

from typing import TYPE_CHECKING, NoReturn

from django.conf import settings
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication, CSRFCheck
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from typing_extensions import override

from tasks_app.admission import principal as principals
from tasks_app.admission.keys import revoke_exposed
from tasks_app.admission.session import TENANT_KEY
from tasks_app.admission.sign_in import remote_address
from tasks_app.api.errors import HttpFaultError
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.domain.key_text import find_key_text
from tasks_app.domain.principal import Principal

if TYPE_CHECKING:  # the framework imports this module while it imports its views
    from rest_framework.views import APIView

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class PrincipalAuthentication(BaseAuthentication):
    """Makes `request.auth` (and `request.user`) the Principal."""

    @override
    def authenticate(self, request: Request) -> tuple[Principal, Principal] | None:
        """Return the principal twice, or None when there is no credential at all.

        Raises:
            UnauthenticatedError: a credential that is not valid.
            HttpFaultError: a credential in the address.
            PermissionDenied: a session without its CSRF token.
        """
        principal = find_principal(request._request)  # noqa: SLF001 - Django's own request
        return None if principal is None else (principal, principal)

    @override
    def authenticate_header(self, request: Request) -> str:
        """Name the scheme, so that a missing credential is 401 and not 403."""
        return "Bearer"


class HasPrincipal(BasePermission):
    """Lets in whoever authenticated; public routes say so themselves."""

    @override
    def has_permission(self, request: Request, view: "APIView") -> bool:
        """Tell whether there is a principal."""
        return isinstance(request.auth, Principal)


def find_principal(request: HttpRequest) -> Principal | None:
    """Return who acts, or None when the request carries no credential.

    Works for REST and for plain views such as streams. Cookies are ignored as soon as a key is
    sent.

    Raises:
        as `PrincipalAuthentication.authenticate`.
    """
    require_https(request)
    refuse_exposed(request.META.get("QUERY_STRING", ""))
    key = header_credential(request)
    if key is not None:
        return principals.from_api_key(key, remote_address(request))
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    principal = principals.from_session(user, request.session.get(TENANT_KEY))
    if request.method not in _SAFE_METHODS:
        _require_csrf(request)
    return principal


def require_https(request: HttpRequest) -> None:
    """Refuse a request in the clear where everything is served over HTTPS (S122).

    Raises:
        HttpFaultError: `https_required`; not redirected, since the client would send its credential
            in the clear every time, unnoticed.
    """
    if settings.SECURE_SSL_REDIRECT and not request.is_secure():
        raise HttpFaultError("https_required", "This address is served over HTTPS only.")


def refuse_exposed(text: str) -> None:
    """Refuse text that carries one of our keys; a genuine one is revoked.

    Raises:
        HttpFaultError: `credential_in_url`.
    """
    if "rtk_" not in text:
        return
    found = find_key_text(text)
    if found is None:
        return
    row = principals.find_genuine_key(found)
    if row is not None:
        revoke_exposed(row)
    raise HttpFaultError(
        "credential_in_url", "Send the key as a header. A key seen here is no longer valid."
    )


def header_credential(request: HttpRequest) -> str | None:
    """Return what is sent as Bearer token or X-Api-Key; None without either.

    Raises:
        UnauthenticatedError: another scheme, or two different credentials.
    """
    bearer = request.headers.get("Authorization")
    plain = request.headers.get("X-Api-Key")
    if bearer is None:
        return plain
    scheme, _, value = bearer.partition(" ")
    value = value.strip()
    if scheme.lower() != "bearer" or (plain is not None and plain != value):
        raise UnauthenticatedError("No valid credential.")
    return value


def _require_csrf(request: HttpRequest) -> None:
    def unused(_: HttpRequest) -> NoReturn:
        raise AssertionError("the check calls no view")

    check = CSRFCheck(unused)
    check.process_request(request)
    reason = check.process_view(request, unused, (), {})
    if reason:
        raise PermissionDenied
