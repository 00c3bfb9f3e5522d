"""What the built-in authorization server refuses beyond its library, and a token's tenant."""

from typing import Any
from urllib.parse import urlsplit

from oauth2_provider.models import get_grant_model
from oauth2_provider.oauth2_validators import OAuth2Validator
from typing_extensions import override

from tasks_app.admission import tokens

GRANTS = frozenset({"authorization_code", "refresh_token"})
_OWN_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


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
        address = urlsplit(redirect_uri)
        if address.scheme == "http" and address.hostname not in _OWN_MACHINE:
            return False
        return bool(
            super().validate_redirect_uri(client_id, redirect_uri, request, *args, **kwargs)
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
