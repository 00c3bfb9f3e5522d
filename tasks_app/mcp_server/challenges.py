"""What a refused request is told in WWW-Authenticate: where tokens come from, and which is needed.

Sources: RFC 6750 section 3, RFC 9728 section 5.1.
"""

from django.core.handlers.asgi import ASGIRequest

from tasks_app.admission.tokens import STARTING_SCOPES
from tasks_app.domain.errors import NotAllowedError, UnauthenticatedError
from tasks_app.mcp_server import scopes
from tasks_app.oauth import resource


class ChallengedError(UnauthenticatedError):
    """No valid credential, and what to do about it."""

    def __init__(self, message: str, challenge: str) -> None:
        super().__init__(message)
        self.challenge = challenge


class TooNarrowError(NotAllowedError):
    """A credential that does not reach this request; another one of the same person may."""

    def __init__(self, capability: str, challenge: str) -> None:
        super().__init__(capability)
        self.challenge = challenge


def who_are_you(request: ASGIRequest, body: bytes) -> str:
    """Return the challenge to whoever has no valid credential, or none at all."""
    sent = {"Authorization", "X-Api-Key"} & request.headers.keys()
    wanted = scopes.asked_for(request.headers, body) or STARTING_SCOPES
    return _challenge({"error": "invalid_token"} if sent else {}, wanted)


def too_narrow(capabilities: tuple[str, ...]) -> str:
    """Return the challenge to whoever needs more scopes."""
    return _challenge({"error": "insufficient_scope"}, capabilities)


def _challenge(facts: dict[str, str], wanted: tuple[str, ...]) -> str:
    told = {"realm": "perdure", **facts, "scope": " ".join(wanted)}
    if resource.has_servers():
        told["resource_metadata"] = resource.metadata_url()
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in told.items())
