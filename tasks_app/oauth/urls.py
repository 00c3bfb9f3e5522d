"""Routes of OAuth: what the door's resource is, always; the authorization server where it is on.

Of the library's routes only these: applications are made by `manage.py oauth`, every token is a
person's, so nothing is introspected, registered or granted to a device.
"""

from typing import Any

from django.urls import include, path

from tasks_app.admission import tokens
from tasks_app.oauth import metadata
from tasks_app.oauth.resource import WELL_KNOWN

urlpatterns: list[Any] = [
    path(WELL_KNOWN, metadata.protected_resource, name="oauth-resource"),
    path(f"{WELL_KNOWN}/mcp", metadata.protected_resource, name="oauth-resource-mcp"),
]

if tokens.is_built_in():
    from tasks_app.oauth import programs, server

    # The library finds its own routes by these names.
    _library = [
        path(
            ".well-known/oauth-authorization-server",
            server.server_metadata,
            name="oauth-server-metadata",
        ),
        path("o/authorize/", server.authorize, name="authorize"),
        path("o/token/", server.token, name="token"),
        path("o/revoke_token/", server.revoke_token, name="revoke-token"),
    ]
    urlpatterns += [
        path("", include((_library, "oauth2_provider"))),
        path("o/programs/", programs.programs, name="oauth-programs"),
    ]
