"""Trying to sign in: where from, and how often."""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _

from tasks_app.admission import throttles
from tasks_app.domain.errors import TooManyRequestsError


class CountingBackend:
    """The first of Django's authentication backends: knows nobody, and refuses who tries too often.

    What it raises is shown by every form that signs somebody in.
    """

    def authenticate(
        self, request: HttpRequest | None, username: str = "", password: str = ""
    ) -> None:
        """Count a try. Raises: ValidationError."""
        if request is None:
            return
        try:
            throttles.charge_login(remote_address(request), username or "")
        except TooManyRequestsError as error:
            raise ValidationError(
                _("Too many tries. Wait a minute and try again."), code=error.code
            ) from error


def remote_address(request: HttpRequest) -> str:
    """Return the client's address; forwarding headers count only behind trusted proxies (S36)."""
    proxies = int(str(settings.REST_FRAMEWORK["NUM_PROXIES"]))
    forwarded = str(request.META.get("HTTP_X_FORWARDED_FOR", ""))
    if proxies and forwarded:
        hops = [hop.strip() for hop in forwarded.split(",")]
        return hops[-min(proxies, len(hops))]
    return str(request.META.get("REMOTE_ADDR") or "")
