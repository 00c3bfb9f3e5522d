"""The built-in authorization server: the page on which a person lets a client in, and its tokens.

The library validates and issues; here is what the page looks like, whose tenant a token is for, and
that both are written down.
"""

from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from oauth2_provider.exceptions import OAuthToolkitError
from oauth2_provider.models import get_access_token_model, get_application_model
from oauth2_provider.views import (
    AuthorizationView,
    OAuthServerMetadataView,
    RevokeTokenView,
    TokenView,
)
from oauthlib.oauth2.rfc6749.errors import (
    CustomOAuth2Error,
    InvalidGrantError,
    InvalidRequestError,
    OAuth2Error,
    UnsupportedGrantTypeError,
)
from typing_extensions import override

from tasks_app.admission import tokens
from tasks_app.admission.principal import list_tenants
from tasks_app.admission.session import find_principal
from tasks_app.api.base import PUBLIC, SIGNED_IN
from tasks_app.domain.principal import Principal
from tasks_app.oauth import bounds
from tasks_app.oauth.metadata import for_every_origin
from tasks_app.oauth.validator import GRANTS, may_be_answered_at
from tasks_app.policy.capabilities import holds


class AuthorizePage(AuthorizationView):  # type: ignore[misc]
    """Asks a signed-in member, each time, whether a client may act in their name."""

    template_name = "oauth/authorize.html"

    @override
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        fault = bounds.fault_of(request)
        if fault:
            return self._refuse(fault)
        if request.user.is_authenticated and find_principal(request) is None:
            return render(request, "dashboard/no_tenant.html", status=403)
        if "approval_prompt" in request.GET:
            # The library would let an earlier consent count; a link alone must grant nothing.
            given = request.GET.copy()
            del given["approval_prompt"]
            request.GET = given  # type: ignore[assignment]
        return cast("HttpResponseBase", super().dispatch(request, *args, **kwargs))

    @override
    def validate_authorization_request(self, request: HttpRequest) -> tuple[Any, dict[str, Any]]:
        scopes, credentials = super().validate_authorization_request(request)
        _require_our_address(request.GET.getlist("resource"), credentials)
        return scopes, credentials

    @override
    def form_valid(self, form: Any) -> HttpResponseBase:
        """Look again whom the answer goes to: hidden fields can be changed as any other."""
        clients = get_application_model().objects.filter(client_id=form.cleaned_data["client_id"])
        client = clients.first()
        if client is None or not may_be_answered_at(client, form.cleaned_data["redirect_uri"]):
            return self._refuse("No program of this client_id is answered at this address.")
        return cast("HttpResponseBase", super().form_valid(form))

    @override
    def form_invalid(self, form: Any) -> HttpResponseBase:
        return self._refuse("Parameters are missing: " + ", ".join(sorted(form.errors)))

    @override
    def redirect(self, redirect_to: str, application: Any) -> HttpResponseBase:
        """Name the issuer to the program, also beside an error (RFC 9207)."""
        address = urlsplit(redirect_to)
        told = [pair for pair in parse_qsl(address.query, True) if pair[0] != "iss"]
        query = urlencode([*told, ("iss", settings.OAUTH2_PROVIDER["OIDC_ISS_ENDPOINT"])])
        named = urlunsplit(address._replace(query=query))
        return cast("HttpResponseBase", super().redirect(named, application))

    def _refuse(self, description: str) -> HttpResponseBase:
        """Tell the person, not the program: it is not known yet whether it is one."""
        error = InvalidRequestError(description=description)
        return self.render_to_response({"error": error}, status=error.status_code)

    @override
    def create_authorization_response(
        self, request: HttpRequest, scopes: str, credentials: dict[str, Any], allow: bool
    ) -> Any:
        """Grant for the tenant the person works in now; one that the client cannot choose."""
        principal = cast("Principal", find_principal(request))
        _require_our_address(credentials.get("resource", []), credentials)
        credentials = {**credentials, "resource": tokens.resources_of(principal.tenant_id)}
        issue = super().create_authorization_response
        if not allow:
            return issue(request, scopes, credentials, allow)
        return tokens.grant_access(
            principal,
            client_id=credentials["client_id"],
            scopes=scopes.split(),
            issue=lambda: issue(request, scopes, credentials, allow),
        )

    @override
    def render_to_response(self, context: dict[str, Any], **kwargs: Any) -> HttpResponse:
        if "error" in context:
            # Strangers come to this too, of whom there is nothing to show.
            return cast("HttpResponse", super().render_to_response(context, **kwargs))
        principal = cast("Principal", find_principal(self.request))
        context["rights"] = _rights(principal, context)
        tenants = {choice.id: choice.name for choice in list_tenants(self.request.user)}
        context["tenant_name"] = tenants[principal.tenant_id]
        response = cast("HttpResponse", super().render_to_response(context, **kwargs))
        if "redirect_uri" in context:
            # Browsers ask the page's policy also where the answer to its form leads.
            address = urlsplit(context["redirect_uri"])
            context["destination"] = f"{address.scheme}://{address.netloc}"
            response._csp_update = {"form-action": [context["destination"]]}  # type: ignore[attr-defined]  # noqa: SLF001 - as django-csp's own decorator does
        return response


class TokenPage(TokenView):  # type: ignore[misc]
    """Changes codes and refresh tokens for tokens, nothing else."""

    @override
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.POST.get("grant_type") not in GRANTS:
            # The library would look for a device, in a table that nothing here may read.
            return _refuse_token(UnsupportedGrantTypeError())
        fault = bounds.fault_of(request)
        if fault:
            return _refuse_token(InvalidRequestError(description=fault))
        try:
            answer = cast("HttpResponseBase", super().post(request, *args, **kwargs))
        except get_access_token_model().DoesNotExist:
            # Ended between its commit and the library's last look at it.
            return _refuse_token(InvalidGrantError())
        # The library forgets these on what is refused while tokens are stored.
        answer.headers["Content-Type"] = "application/json"
        answer.headers.setdefault("Cache-Control", "no-store")
        return answer


class RevokePage(RevokeTokenView):  # type: ignore[misc]
    """Takes a token back from the program that has it."""

    @override
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        fault = bounds.fault_of(request)
        if fault:
            return _refuse_token(InvalidRequestError(description=fault))
        return cast("HttpResponseBase", super().post(request, *args, **kwargs))


def _refuse_token(error: OAuth2Error) -> HttpResponse:
    """Return an error of the token endpoint as RFC 6749, section 5.2 writes it."""
    headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}
    return JsonResponse(dict(error.twotuples), status=error.status_code, headers=headers)


def _rights(principal: Principal, context: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return what is asked for in words, and whether the person has the right themselves."""
    asked = zip(context.get("scopes", ()), context.get("scopes_descriptions", ()), strict=True)
    return [(words, holds(principal, scope)) for scope, words in asked]


def _require_our_address(resources: Sequence[str], credentials: dict[str, Any]) -> None:
    """Refuse tokens for other addresses; a client that names none gets one for ours.

    Raises: OAuthToolkitError `invalid_target`.
    """
    if set(resources) - {settings.MCP_RESOURCE_URL}:
        error = CustomOAuth2Error(
            error="invalid_target",
            description="Tokens are given for the MCP address of this server only.",
            state=credentials.get("state"),
        )
        raise OAuthToolkitError(error=error, redirect_uri=credentials["redirect_uri"])


authorize = never_cache(AuthorizePage.as_view())
token = TokenPage.as_view()
revoke_token = RevokePage.as_view()
server_metadata = for_every_origin(OAuthServerMetadataView.as_view())

authorize.capability = SIGNED_IN
token.capability = PUBLIC
revoke_token.capability = PUBLIC
