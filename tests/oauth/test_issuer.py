"""Tokens of another issuer, whose keys are read from a real server (S140, A47)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.contrib.auth.models import User

from tasks_app.admission import identities, issuer, tokens
from tasks_app.domain.errors import IssuerUnavailableError, UnauthenticatedError
from tasks_app.models import Membership, Task, Tenant
from tests import factories
from tests.oauth.door import METADATA, URL, answer, challenge_of
from tests.oauth.issuer import ISSUER, Issuer

pytestmark = pytest.mark.django_db(transaction=True)

CALL = {"name": "scripted", "arguments": {"script": []}}
LONG_AGO = datetime.now(UTC) - timedelta(hours=2)


@pytest.fixture(scope="module")
def running() -> Iterator[Issuer]:
    with Issuer() as found:
        yield found


@pytest.fixture
def source(running: Issuer, settings: Any) -> Issuer:
    settings.MCP_JWT_ISSUER = ISSUER
    settings.MCP_JWKS_URL = running.address
    return running


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant()


@pytest.fixture
def anna(tenant: Tenant, source: Issuer) -> User:
    user = factories.make_member(tenant, "submitter", factories.make_user(email="anna@x.example"))
    identities.link_identity(tenant=tenant, user=user, subject="anna")
    return user


@pytest.mark.parametrize("key", ["rsa", "ec"])
def test_linked_subject_acts_as_its_member(
    source: Issuer, tenant: Tenant, anna: User, key: str
) -> None:
    told = answer(source.sign(key), "tools/call", CALL)
    assert told.status_code == 200, told.text
    [task] = Task.objects.for_tenant(tenant.id)
    assert task.initiator_id == anna.pk


def test_scopes_limit_what_it_may(source: Issuer, tenant: Tenant, anna: User) -> None:
    """As one text, or as the list that some issuers write."""
    refused = answer(source.sign(scope="tasks:read openid"), "tools/call", CALL)
    assert refused.status_code == 403
    assert challenge_of(refused)["scope"] == "tasks:create tasks:read"
    listed = source.sign(scope=None, scp=["tasks:read", 7])
    assert tokens.from_token(listed).scopes == {"tasks:read"}
    assert tokens.from_token(source.sign(scope=None)).scopes == frozenset()


def refused_tokens(source: Issuer) -> dict[str, str]:
    """Return tokens of which each has one thing wrong."""
    stranger = rsa.generate_private_key(65537, 2048)
    mac = "HS256"
    return {
        "unsigned": jwt.encode({"iss": ISSUER, "aud": URL, "sub": "anna"}, "", "none"),
        "mac-with-the-public-key": _mac(source),
        "mac-with-an-empty-key": source.sign(b"k" * 32, mac, {"kid": "rsa"}),
        "other-signature": source.sign(stranger, "RS256", {"kid": "rsa"}),
        "other-algorithm": source.sign("rsa", "RS512"),
        "key-of-another-kind": source.sign("ec", header={"kid": "rsa"}),
        "unknown-key": source.sign(header={"kid": "no"}),
        "its-own-key": source.sign(
            stranger,
            "RS256",
            {"kid": "me", "jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/"},
        ),
        "wrong-audience": source.sign(aud="https://elsewhere.example/mcp"),
        "begin-of-the-audience": source.sign(aud=URL.removesuffix("/mcp")),
        "no-audience": source.sign(aud=None),
        "wrong-issuer": source.sign(iss=ISSUER + "/"),
        "no-issuer": source.sign(iss=None),
        "expired": source.sign(exp=LONG_AGO),
        "never-expires": source.sign(exp=None),
        "not-yet": source.sign(nbf=datetime.now(UTC) + timedelta(hours=1)),
        "no-subject": source.sign(sub=None),
        "unknown-subject": source.sign(sub="berta"),
        "same-mail-other-subject": source.sign(sub="x", email="anna@x.example"),
        "identity-token": source.sign(header={"typ": "JWT"}),
        "three-words": "not.a.token",
    }


def _mac(source: Issuer) -> str:
    """Return a token signed with the public key as if it were a secret; the library refuses to."""
    import base64
    import hashlib
    import hmac
    import json

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    claims = {"iss": ISSUER, "aud": URL, "sub": "anna", "exp": 4102444800}
    text = part({"alg": "HS256", "typ": "at+jwt", "kid": "rsa"}) + b"." + part(claims)
    digest = hmac.new(source.public_pem(), text, hashlib.sha256).digest()
    return (text + b"." + base64.urlsafe_b64encode(digest).rstrip(b"=")).decode()


def test_a47_every_other_token_is_one_refusal(source: Issuer, anna: User) -> None:
    kept = {}
    for name, text in refused_tokens(source).items():
        with pytest.raises(UnauthenticatedError):
            pytest.fail(f"{name}: {tokens.from_token(text)}")
        kept[name] = text
    told = answer(kept["wrong-audience"], "tools/list")
    assert told.status_code == 401
    assert challenge_of(told) == {
        "realm": "perdure",
        "error": "invalid_token",
        "scope": "tasks:create tasks:read",
        "resource_metadata": METADATA,
    }


def test_kinds_of_tokens_can_be_named(source: Issuer, anna: User, settings: Any) -> None:
    settings.MCP_JWT_TYPES = ["at+jwt", "jwt"]
    tokens.from_token(source.sign(header={"typ": "JWT"}))
    tokens.from_token(source.sign(header={"typ": "application/at+jwt"}))


def test_link_ends_at_once_and_with_the_membership(
    source: Issuer, tenant: Tenant, anna: User
) -> None:
    text = source.sign()
    tokens.from_token(text)
    Membership.objects.for_tenant(tenant.id).update(status="disabled")
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(text)
    Membership.objects.for_tenant(tenant.id).update(status="active")
    identities.unlink_identity(tenant=tenant, subject="anna")
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(text)


def test_token_in_the_middle_of_its_life_ends_with_it(source: Issuer, anna: User) -> None:
    """A stream asks again: what has expired meanwhile counts no more."""
    seconds_ago = datetime.now(UTC) - timedelta(seconds=20)
    tokens.from_token(source.sign(exp=seconds_ago))
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(source.sign(exp=datetime.now(UTC) - timedelta(seconds=40)))


def test_keys_are_read_once_for_many_tokens(source: Issuer) -> None:
    """Also for tokens with keys that are not there: nobody makes us ask all the time."""
    keys = issuer.Keys(source.address)
    before = source.reads
    assert keys.find("rsa") is not None
    for _ in range(50):
        assert keys.find("rsa") is not None
        assert keys.find("no") is None
    assert source.reads == before + 1


def test_new_key_is_found_and_withdrawn_one_forgotten(source: Issuer) -> None:
    keys = issuer.Keys(source.address, pause_seconds=0)
    assert keys.find("rsa") is not None
    source.keys["new"] = source.keys.pop("ec")
    try:
        assert keys.find("new") is not None
        assert keys.find("ec") is None
    finally:
        source.keys["ec"] = source.keys.pop("new")


def test_silent_issuer_is_nobodys_refusal(anna: User, settings: Any) -> None:
    """503, so that clients wait; keys that are known still count."""
    with Issuer() as gone:
        text = gone.sign()
        keys = issuer.Keys(gone.address, pause_seconds=0)
        assert keys.find("rsa") is not None
        settings.MCP_JWKS_URL = gone.address
    assert keys.find("rsa") is not None
    assert keys.find("no") is None
    with pytest.raises(IssuerUnavailableError):
        issuer.Keys(gone.address).find("rsa")
    told = answer(text, "tools/list")
    assert (told.status_code, told.json()["code"]) == (503, "issuer_unavailable")
    assert int(told.headers["Retry-After"]) >= 1
