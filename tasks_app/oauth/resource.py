"""What the MCP door is to OAuth clients: a protected resource (RFC 9728). Settings only, no rows."""

from urllib.parse import urlsplit

from django.conf import settings

from tasks_app.admission import issuer, tokens

WELL_KNOWN = ".well-known/oauth-protected-resource"


def has_servers() -> bool:
    """Tell whether there is a server at which a client can get a token."""
    return settings.MCP_AUTH != "none" and bool(_servers())


def metadata_url() -> str:
    """Return the address of the document that names those servers."""
    door = urlsplit(settings.MCP_RESOURCE_URL)
    return f"{door.scheme}://{door.netloc}/{WELL_KNOWN}{door.path}"


def metadata() -> dict[str, object]:
    """Return the document."""
    return {
        "resource": settings.MCP_RESOURCE_URL,
        "resource_name": "Perdure",
        "authorization_servers": _servers(),
        "scopes_supported": list(tokens.SCOPES),
        "bearer_methods_supported": ["header"],
    }


def _servers() -> list[str]:
    ours = str(settings.OAUTH2_PROVIDER["OIDC_ISS_ENDPOINT"])
    theirs = str(settings.MCP_JWT_ISSUER)
    servers = ((ours, tokens.is_built_in()), (theirs, issuer.is_configured()))
    return [address for address, is_on in servers if is_on]
