"""What clients find out before they have a token."""

import socket
import threading
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from tests import factories
from tests.oauth.door import URL

pytestmark = pytest.mark.django_db
RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
HERE = "http://localhost:8000"


@pytest.mark.parametrize("path", [RESOURCE, f"{RESOURCE}/mcp"])
def test_door_names_its_server_and_scopes(path: str) -> None:
    """RFC 9728, also for pages of other origins, whatever host name the request came by."""
    told = Client().get(path, headers={"host": "127.0.0.1"})
    assert told.headers["Access-Control-Allow-Origin"] == "*"
    assert told.json() == {
        "resource": URL,
        "resource_name": "Perdure",
        "authorization_servers": [HERE],
        "scopes_supported": [
            "tasks:read", "tasks:create", "tasks:steer", "tasks:cancel", "approvals:decide",
        ],
        "bearer_methods_supported": ["header"],
    }  # fmt: skip


def test_server_says_what_it_takes_and_no_more() -> None:
    """RFC 8414: codes with PKCE, their renewal, clients by address; no registration."""
    told = Client().get(SERVER).json()
    assert told == {
        "issuer": HERE,
        "authorization_endpoint": f"{HERE}/o/authorize/",
        "token_endpoint": f"{HERE}/o/token/",
        "revocation_endpoint": f"{HERE}/o/revoke_token/",
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": [
            "none", "client_secret_basic", "client_secret_post",
        ],
        "revocation_endpoint_auth_methods_supported": [
            "none", "client_secret_basic", "client_secret_post",
        ],
        "scopes_supported": [
            "approvals:decide", "tasks:cancel", "tasks:create", "tasks:read", "tasks:steer",
        ],
        "client_id_metadata_document_supported": True,
        "authorization_response_iss_parameter_supported": True,
    }  # fmt: skip


@pytest.mark.parametrize("path", [RESOURCE, f"{RESOURCE}/mcp", SERVER])
def test_pages_may_ask_with_the_protocols_header(path: str) -> None:
    asked = Client().options(path, headers={"Access-Control-Request-Headers": "x"})
    assert asked.status_code == 204
    assert asked.headers["Access-Control-Allow-Origin"] == "*"
    assert asked.headers["Access-Control-Allow-Headers"] == "MCP-Protocol-Version"
    assert Client().post(path).status_code == 405


def test_another_issuer_is_named_too(settings: Any) -> None:
    settings.MCP_JWT_ISSUER = "https://id.example"
    told = Client().get(RESOURCE).json()
    assert told["authorization_servers"] == [HERE, "https://id.example"]


def test_door_for_everybody_has_no_server(settings: Any) -> None:
    settings.MCP_AUTH = "none"
    assert Client().get(RESOURCE).status_code == 404


@pytest.mark.parametrize("path", [
    "/o/applications/", "/o/applications/register/", "/o/register/", "/o/introspect/",
    "/o/device-authorization/", "/o/authorized_tokens/", "/o/userinfo/",
    "/.well-known/openid-configuration",
])  # fmt: skip
def test_rest_of_the_library_is_not_served(path: str) -> None:
    window = Client()
    window.force_login(
        factories.make_user(is_staff=True, is_superuser=True),
        "django.contrib.auth.backends.ModelBackend",
    )
    assert window.get(path).status_code == 404


def test_admin_shows_nobodys_tokens() -> None:
    labels = {model._meta.app_label for model in admin.site._registry}
    assert "oauth2_provider" not in labels


def test_client_by_address_is_not_fetched_from_inside() -> None:
    """A25: an address of one's own network is an unknown client, and nothing connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        port = listener.getsockname()[1]
        called: list[object] = []

        def accept() -> None:
            try:
                called.append(listener.accept())
            except TimeoutError:
                return

        waiting = threading.Thread(target=accept)
        waiting.start()
        fields = {"grant_type": "authorization_code", "code": "x", "redirect_uri": "http://x/"}
        client_id = f"https://127.0.0.1:{port}/client.json"
        told = Client().post("/o/token/", {**fields, "client_id": client_id})
        waiting.join()
    assert told.json()["error"] == "invalid_client"
    assert called == []


def test_clients_by_address_can_be_limited_to_hosts(settings: Any) -> None:
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "CIMD_ALLOWED_HOSTS": ["claude.ai"]}
    fields = {"grant_type": "authorization_code", "code": "x", "redirect_uri": "http://x/"}
    client_id = "https://elsewhere.example/client.json"
    told = Client().post("/o/token/", {**fields, "client_id": client_id})
    assert told.json()["error"] == "invalid_client"
