"""What the built-in authorization server refuses beyond its library, and a token's tenant."""

from typing import Any
from urllib.parse import urlsplit

from oauth2_provider.models import get_grant_model
from oauth2_provider.oauth2_validators import OAuth2Validator
from typing_extensions import override

from tasks_app.admission import tokens

GRANTS = frozenset({"authorization_code", "refresh_token"})
OWN_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


def may_be_answered_at(client: Any, redirect_uri: str) -> bool:
    """Tell whether an address is one of a client's, on the person's machine or over TLS."""
    try:
        address = urlsplit(redirect_uri)
        if address.scheme == "http" and address.hostname not in OWN_MACHINE:
            return False
        return bool(client.redirect_uri_allowed(redirect_uri))
    except ValueError:  # such as a host in brackets that are never closed
        return False


class Validator(OAuth2Validator):  # type: ignore[misc]
    """Codes with PKCE and their refreshing, nothing else: every token is a person's."""

    @override
    def validate_grant_type(
        self, client_id: str, grant_type: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Refuse tokens that no person has agreed to."""
        return grant_type in GRANTS and bool(
            super().validate_grant_type(client_id, grant_type, client, request, *args, **kwargs)
        )

    @override
    def validate_redirect_uri(
        self, client_id: str, redirect_uri: str, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Refuse plain http, but to a program on the person's own machine (RFC 8252)."""
        return may_be_answered_at(request.client, redirect_uri)

    @override
    def _load_application(self, client_id: str | None, request: Any) -> Any:
        """Know nobody by a name that the database cannot even look for."""
        return (
            None if "\x00" in (client_id or "") else super()._load_application(client_id, request)
        )

    @override
    def _check_and_set_request_resource(self, request: Any) -> None:
        """Hand the tenant from the code to its token, and from that to the next.

        A client asks for a token for the address it calls; what it asks for replaces what was
        granted, and with it the tenant that the person agreed in.
        """
        super()._check_and_set_request_resource(request)
        if request.grant_type == "authorization_code":
            codes = get_grant_model().objects.filter(code=request.code, application=request.client)
            granted = codes.values_list("resource", flat=True).first()
        else:
            granted = request.refresh_token_instance.resource
        request.resource = tokens.resources_of(tokens.tenant_of(granted or []))
