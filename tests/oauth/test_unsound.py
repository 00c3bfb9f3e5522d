"""What programs and strangers send that is not allowed: an answer by the protocol, never a 500."""

import pytest
from django.test import Client
from oauth2_provider.models import AccessToken, Application

pytestmark = pytest.mark.django_db

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


@pytest.mark.parametrize("fields", [
    pytest.param({"grant_type": DEVICE}, id="device"),
    pytest.param({"grant_type": DEVICE, "device_code": "abc"}, id="device-code"),
    pytest.param({"grant_type": "password", "username": "a", "password": "b"}, id="password"),
    pytest.param({"grant_type": "client_credentials"}, id="client-credentials"),
    pytest.param({"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer"}, id="jwt"),
    pytest.param({"grant_type": ""}, id="empty"),
    pytest.param({}, id="none"),
])  # fmt: skip
def test_other_grants_are_not_supported(program: Application, fields: dict[str, str]) -> None:
    """Also those that the library knows: it would read tables that are closed to it here."""
    told = Client().post("/o/token/", {"client_id": program.client_id, **fields})
    assert (told.status_code, told.json()["error"]) == (400, "unsupported_grant_type")
    assert told.headers["Cache-Control"] == "no-store"
    assert not AccessToken.objects.exists()
