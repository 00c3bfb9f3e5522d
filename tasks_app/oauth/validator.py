"""What the built-in authorization server refuses beyond its library, and a token's tenant."""

import hashlib
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

from django.utils import timezone
from oauth2_provider.models import get_grant_model, get_refresh_token_model
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauthlib.oauth2.rfc6749.errors import InvalidGrantError
from typing_extensions import override

from tasks_app.admission import tokens
from tasks_app.admission.replays import own_transaction

GRANTS = frozenset({"authorization_code", "refresh_token"})


def may_be_answered_at(client: Any, redirect_uri: str) -> bool:
    """Tell whether an address is one of a client's, on the person's machine or over TLS."""
    try:
        address = urlsplit(redirect_uri)
        if address.scheme == "http" and address.hostname not in tokens.OWN_MACHINE:
            return False
        return bool(client.redirect_uri_allowed(redirect_uri))
    except ValueError:  # such as a host in brackets that are never closed
        return False


def _family_of(client: Any, code: str) -> UUID:
    return uuid5(NAMESPACE_URL, f"{client.client_id} {code}")


def _end_tokens_of(client: Any, code: str) -> None:
    get_refresh_token_model().revoke_family(_family_of(client, code))


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
    def client_authentication_required(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Note when a token request came; it is the first that is asked about one."""
        request.arrived = timezone.now()
        return bool(super().client_authentication_required(request, *args, **kwargs))

    @override
    def validate_code(
        self, client_id: str, code: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """End what a code gave when it comes again (RFC 6749, section 4.1.2)."""
        if super().validate_code(client_id, code, client, request, *args, **kwargs):
            return True
        if not get_grant_model().objects.filter(code=code).exists():
            _end_tokens_of(client, code)
        return False

    @override
    def validate_refresh_token(
        self, refresh_token: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Take a request that was overtaken by its twin for no replay, which ends the family.

        Transaction: its own. Locks the refresh token, so that nothing is used up in between.
        """
        checksum = hashlib.sha256(refresh_token.encode()).hexdigest()
        rows = get_refresh_token_model().objects.filter(token_checksum=checksum)
        with own_transaction():
            used = [row.revoked for row in rows.select_for_update() if row.revoked is not None]
            if any(moment >= request.arrived for moment in used):
                return False
            return bool(
                super().validate_refresh_token(refresh_token, client, request, *args, **kwargs)
            )

    @override
    def save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Issue tokens; a code that was used up meanwhile came twice."""
        try:
            return super().save_bearer_token(token, request, *args, **kwargs)
        except InvalidGrantError:
            if request.grant_type == "authorization_code":
                _end_tokens_of(request.client, request.code)
            raise

    @override
    def _save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Issue tokens for what is still unused, and use it up in the same transaction.

        Locks the code or the refresh token: of several at once, one gets something.
        Raises: InvalidGrantError when it was used up since it was validated.
        """
        codes = get_grant_model().objects.filter(code=request.code, application=request.client)
        if request.grant_type == "authorization_code":
            held = codes
        else:
            held = get_refresh_token_model().objects.filter(
                pk=request.refresh_token_instance.pk, revoked__isnull=True
            )
        if held.select_for_update().first() is None:
            raise InvalidGrantError(request=request)
        issued = super()._save_bearer_token(token, request, *args, **kwargs)
        if request.grant_type == "authorization_code":
            codes.delete()
        return issued

    @override
    def invalidate_authorization_code(
        self, client_id: str, code: str, request: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Do nothing: the code went with the transaction that issued its tokens."""

    @override
    def _create_refresh_token(
        self, request: Any, refresh_token_code: str, access_token: Any, previous: Any
    ) -> Any:
        """Put what a code gives into a family that can be found again by the code."""
        issued = super()._create_refresh_token(request, refresh_token_code, access_token, previous)
        if request.grant_type == "authorization_code":
            issued.token_family = _family_of(request.client, request.code)
            rows = get_refresh_token_model().objects.filter(pk=issued.pk)
            rows.update(token_family=issued.token_family)
        return issued

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
