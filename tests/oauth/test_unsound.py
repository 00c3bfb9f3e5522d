"""What programs and strangers send that is not allowed: an answer by the protocol, never a 500."""

import base64
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from oauth2_provider.models import AccessToken, Application, Grant

from tests.oauth.test_page import asking, exchange, form_of, let_in

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


LONG = "x" * 5000
FIELDS = [
    "client_id", "redirect_uri", "response_type", "scope", "state", "nonce", "claims",
    "resource", "code_challenge", "code_challenge_method",
]  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_what_cannot_be_stored_is_refused(window: Client, program: Application, field: str) -> None:
    """When the page is asked for, and when its form comes back changed; strangers are told too."""
    sound = form_of(window.get("/o/authorize/", asking(program)))
    answers = [
        Client().get("/o/authorize/", asking(program, **{field: LONG})),
        window.get("/o/authorize/", asking(program, **{field: LONG})),
        window.post("/o/authorize/", {**sound, field: LONG, "allow": "1"}),
    ]
    for told in answers:
        assert told.status_code == 400
        assert "Nothing was granted" in told.content.decode()
        assert field in told.content.decode()
    assert not Grant.objects.exists()


@pytest.mark.parametrize("field", ["client_id", "redirect_uri", "response_type", "scope"])
def test_form_without_its_fields_is_refused(
    window: Client, program: Application, field: str
) -> None:
    sound = form_of(window.get("/o/authorize/", asking(program)))
    for fields in ({}, {name: sound[name] for name in sound if name != field}):
        told = window.post("/o/authorize/", {**fields, "allow": "1"})
        assert told.status_code == 400
        assert field in told.content.decode()
    assert not Grant.objects.exists()


@pytest.mark.parametrize("changes", [
    pytest.param({"client_id": "nobody"}, id="client"),
    pytest.param({"redirect_uri": "https://elsewhere.example/callback"}, id="address"),
    pytest.param({"redirect_uri": "http://[::1"}, id="no-address"),
])  # fmt: skip
@pytest.mark.parametrize("allow", [{}, {"allow": "1"}], ids=["no", "yes"])
def test_changed_form_is_answered_to_nobody_else(
    window: Client, program: Application, changes: dict[str, str], allow: dict[str, str]
) -> None:
    """A no is sent nowhere either that the program has not registered."""
    sound = form_of(window.get("/o/authorize/", asking(program)))
    told = window.post("/o/authorize/", {**sound, **changes, **allow})
    assert told.status_code == 400
    assert "Nothing was granted" in told.content.decode()


def test_strangers_without_a_page_are_told(program: Application) -> None:
    """`prompt=none` of an unknown client is answered before anybody has signed in."""
    query = asking(program, client_id="nobody", prompt="none")
    assert Client().get("/o/authorize/", query).status_code == 400


@pytest.mark.parametrize(
    "field", ["client_id", "code", "code_verifier", "redirect_uri", "resource"]
)
def test_token_requests_are_bounded(window: Client, program: Application, field: str) -> None:
    code = let_in(window, program)["code"]
    told = exchange(program, **{"code": code, field: LONG})
    assert (told.status_code, told.json()["error"]) == (400, "invalid_request")
    back = Client().post("/o/revoke_token/", {"client_id": program.client_id, "token": LONG})
    assert (back.status_code, back.json()["error"]) == (400, "invalid_request")


def test_name_in_the_header_that_cannot_be_looked_for_is_unknown() -> None:
    name = base64.b64encode(b"x\x00:secret").decode()
    fields = {"grant_type": "refresh_token", "refresh_token": "x"}
    told = Client().post("/o/token/", fields, headers={"authorization": f"Basic {name}"})
    assert (told.status_code, told.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize(("changes", "error"), [
    pytest.param({"scope": "keys:manage"}, "invalid_scope", id="scope"),
    pytest.param({"resource": "https://elsewhere.example/mcp"}, "invalid_target", id="target"),
    pytest.param({"resource": "elsewhere"}, "invalid_target", id="no-target"),
    pytest.param({"code_challenge": None}, "invalid_request", id="request"),
])  # fmt: skip
def test_every_error_names_its_issuer(
    window: Client, program: Application, changes: dict[str, Any], error: str
) -> None:
    """RFC 9207: the metadata promises it, and a client compares it before it reads the error."""
    sound = form_of(window.get("/o/authorize/", asking(program)))
    sent = [window.get("/o/authorize/", asking(program, **changes))]
    changed = {name: value or "" for name, value in changes.items()}
    sent.append(window.post("/o/authorize/", {**sound, **changed, "allow": "1"}))
    for answer in sent:
        told = parse_qs(urlsplit(answer.headers["Location"]).query)
        assert told["error"] == [error]
        assert told["iss"] == ["http://localhost:8000"]
        assert told["state"] == ["abc"]


def test_a_no_and_a_missing_sign_in_name_their_issuer(window: Client, program: Application) -> None:
    sound = form_of(window.get("/o/authorize/", asking(program)))
    for answer, error in (
        (window.post("/o/authorize/", sound), "access_denied"),
        (Client().get("/o/authorize/", asking(program, prompt="none")), "login_required"),
    ):
        told = parse_qs(urlsplit(answer.headers["Location"]).query)
        assert (told["error"], told["iss"]) == ([error], ["http://localhost:8000"])
