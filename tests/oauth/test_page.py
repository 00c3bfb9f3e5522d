"""The page that lets a program in, the tokens that follow, and what ends them."""

import base64
import hashlib
import json
import re
import secrets
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, Grant, RefreshToken

from ledger_app.models import AuditEntry
from tasks_app.admission import tokens
from tasks_app.domain.errors import UnauthenticatedError
from tasks_app.models import Tenant
from tests import factories
from tests.oauth.door import URL, make_client, make_token

pytestmark = pytest.mark.django_db

CALLBACK = "http://127.0.0.1:53211/callback"
VERIFIER = secrets.token_urlsafe(48)
CHALLENGE = (
    base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
)


def asking(program: Application, **changes: Any) -> dict[str, Any]:
    """Return the query of an authorization request."""
    query = {
        "response_type": "code",
        "client_id": program.client_id,
        "redirect_uri": CALLBACK,
        "scope": "tasks:create tasks:read",
        "state": "abc",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "resource": URL,
        **changes,
    }
    return {name: value for name, value in query.items() if value is not None}


def form_of(page: Any) -> dict[str, str]:
    """Return the hidden fields of the page's form."""
    form = page.context["form"]
    return {name: value for name in form.fields if (value := form[name].value()) is not None}


def let_in(window: Client, program: Application, **changes: Any) -> dict[str, str]:
    """Agree; return what the program is sent."""
    query = asking(program, **changes)
    page = window.get("/o/authorize/", query)
    assert page.status_code == 200, page.headers
    sent = window.post("/o/authorize/", {**form_of(page), "allow": "1"}, query_params=query)
    assert sent.status_code == 302, sent.content
    assert sent.headers["Location"].startswith(CALLBACK)
    return answer_of(sent)


def answer_of(response: Any) -> dict[str, str]:
    return {
        name: value[0]
        for name, value in parse_qs(urlsplit(response.headers["Location"]).query).items()
    }


def exchange(program: Application, code: str, **changes: Any) -> Any:
    """Return what the token endpoint says to a program that has a code."""
    fields = {
        "grant_type": "authorization_code",
        "client_id": program.client_id,
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
        "resource": URL,
        "code": code,
        **changes,
    }
    sent = {name: value for name, value in fields.items() if value is not None}
    return Client().post("/o/token/", sent)


def test_page_asks_and_the_token_works_for_the_tenant(
    window: Client, person: User, tenant: Tenant, program: Application
) -> None:
    page = window.get("/o/authorize/", asking(program))
    text = page.content.decode()
    assert "Let Desk in?" in text
    assert "Acme" in text
    assert "Start tasks in your name" in text
    assert program.client_id in text
    # Browsers ask the policy also where the answer to the form leads.
    policy = page.headers["Content-Security-Policy"].split("; ")
    assert "form-action 'self' http://127.0.0.1:53211" in [part.rstrip(";") for part in policy]
    assert "no-store" in page.headers["Cache-Control"]
    sent = let_in(window, program)
    assert sent["state"] == "abc"
    assert sent["iss"] == "http://localhost:8000"
    given = exchange(program, sent["code"]).json()
    assert given["scope"] == "tasks:create tasks:read"
    bearer = tokens.from_token(given["access_token"])
    assert (bearer.principal.tenant_id, bearer.principal.user_id) == (tenant.id, person.pk)
    assert bearer.scopes == {"tasks:create", "tasks:read"}
    entry = AuditEntry.objects.filter(stream=f"tenant:{tenant.id}").latest("seq")
    assert json.loads(entry.envelope)["action"] == "oauth.grant"
    assert json.loads(entry.envelope)["target"] == f"oauth_client:{program.client_id}"


@pytest.mark.parametrize(("language", "words"), [
    ("en", ("Signed in as", "Tenant")), ("zh-hans", ("当前用户", "租户")),
])  # fmt: skip
def test_page_says_in_whose_name_and_where(
    window: Client, person: User, program: Application, language: str, words: tuple[str, str]
) -> None:
    """Who has several accounts or tenants sees which one they give."""
    page = window.get("/o/authorize/", asking(program), headers={"accept-language": language})
    facts = re.search(r"<dl.*?</dl>", page.content.decode(), re.DOTALL)
    assert facts is not None
    told = dict(re.findall(r"<dt>(.*?)</dt><dd dir=\"auto\">(.*?)</dd>", facts.group()))
    assert told == dict(zip(words, (person.username, "Acme"), strict=True))


def test_every_column_of_the_programs_has_a_name(
    window: Client, person: User, tenant: Tenant, program: Application
) -> None:
    make_token(tenant, person, application=program)
    text = window.get("/o/programs/").content.decode()
    head, body = text.split("<thead>")[1].split("</thead>")
    names = re.findall(r'<th scope="col">(?:<span class="vh">)?([^<]+)', head)
    assert "<td" not in head
    assert len(names) == len(re.findall(r"<t[dh]\b", body.split("</tr>")[0])) == 4


def test_no_token_is_stored_in_the_clear(window: Client, program: Application) -> None:
    """Whoever reads the tables can use nothing of what they hold."""
    given = exchange(program, let_in(window, program)["code"]).json()
    held = json.dumps(
        [list(model.objects.values()) for model in (AccessToken, RefreshToken, Grant)], default=str
    )
    assert given["access_token"] not in held
    assert given["refresh_token"] not in held


def test_person_of_several_tenants_lets_in_for_the_one_they_work_in(
    window: Client, person: User, tenant: Tenant, program: Application
) -> None:
    """What a token reaches stays as it was agreed, whatever the person looks at later."""
    other = factories.make_tenant(slug="zeta", name="Zeta")
    factories.make_member(other, "submitter", person)
    first = exchange(program, let_in(window, program)["code"]).json()
    window.post("/tenant/", {"tenant": "zeta"})
    assert "Zeta" in window.get("/o/authorize/", asking(program)).content.decode()
    second = exchange(program, let_in(window, program)["code"]).json()
    window.post("/tenant/", {"tenant": tenant.slug})
    renewed = renew(program, second["refresh_token"]).json()
    reached = [
        tokens.from_token(given["access_token"]).principal.tenant_id for given in (first, renewed)
    ]
    assert reached == [tenant.id, other.id]


def renew(program: Application, refresh_token: str, **changes: Any) -> Any:
    fields = {"grant_type": "refresh_token", "refresh_token": refresh_token, "resource": URL}
    return Client().post("/o/token/", {**fields, "client_id": program.client_id, **changes})


def test_program_cannot_choose_the_tenant(window: Client, program: Application) -> None:
    """Neither when it asks, nor when it fetches the token."""
    foreign = f"{URL}/tenants/{factories.make_tenant().id}"
    refused = window.get("/o/authorize/", asking(program, resource=foreign))
    assert answer_of(refused)["error"] == "invalid_target"
    page = window.get("/o/authorize/", asking(program))
    changed = {**form_of(page), "resource": f"{URL} {foreign}", "allow": "1"}
    refused = window.post("/o/authorize/", changed)
    assert answer_of(refused)["error"] == "invalid_target"
    code = let_in(window, program)["code"]
    assert exchange(program, code, resource=foreign).json()["error"] == "invalid_target"
    assert not AccessToken.objects.exists()


def test_program_that_names_no_address_gets_a_token_for_ours(
    window: Client, program: Application
) -> None:
    code = let_in(window, program, resource=None)["code"]
    given = exchange(program, code, resource=None).json()
    tokens.from_token(given["access_token"])


def test_no_is_no(window: Client, program: Application) -> None:
    page = window.get("/o/authorize/", asking(program))
    refused = window.post("/o/authorize/", form_of(page))
    assert answer_of(refused)["error"] == "access_denied"
    assert not Grant.objects.exists()


def test_earlier_consent_counts_for_nothing(window: Client, program: Application) -> None:
    """A link alone grants nothing, though the library would let it."""
    exchange(program, let_in(window, program)["code"])
    page = window.get("/o/authorize/", asking(program, approval_prompt="auto"))
    assert page.status_code == 200
    assert not Grant.objects.exists()


@pytest.mark.parametrize("changes", [
    pytest.param({"code_challenge": None, "code_challenge_method": None}, id="no-pkce"),
    pytest.param({"code_challenge_method": "plain"}, id="plain-pkce"),
    pytest.param({"response_type": "token"}, id="implicit"),
    pytest.param({"scope": "keys:manage"}, id="other-scope"),
    pytest.param({"resource": "https://elsewhere.example/mcp"}, id="other-address"),
])  # fmt: skip
def test_unsound_requests_are_sent_back(
    window: Client, program: Application, changes: dict[str, Any]
) -> None:
    """RFC 9700: no code, whatever the person would say."""
    query = asking(program, **changes)
    sent = window.get("/o/authorize/", query)
    if sent.status_code == 200:
        sent = window.post("/o/authorize/", {**form_of(sent), "allow": "1"})
    assert sent.status_code == 302
    location = urlsplit(sent.headers["Location"])
    assert "error=" in location.query + location.fragment
    assert not Grant.objects.exists()


@pytest.mark.parametrize("address", [
    "http://127.0.0.1:53211/elsewhere",
    "http://elsewhere.example/callback",
    "https://elsewhere.example/callback",
    "http://plain.example/callback",
    "http://127.0.0.1@elsewhere.example/callback",
])  # fmt: skip
def test_answers_go_only_where_the_program_may_be(window: Client, address: str) -> None:
    """An address that is not registered, or plain http beyond the own machine, is never followed."""
    program = make_client(redirect_uris="http://127.0.0.1/callback http://plain.example/callback")
    page = window.get("/o/authorize/", asking(program, redirect_uri=address))
    assert page.status_code == 400
    assert "Nothing was granted" in page.content.decode()


def test_strangers_sign_in_first_and_come_back(program: Application) -> None:
    sent = Client().get("/o/authorize/", asking(program))
    assert sent.status_code == 302
    assert sent.headers["Location"].startswith("/login/?next=/o/authorize/")


def test_who_belongs_nowhere_can_give_nothing(program: Application) -> None:
    window = Client()
    window.force_login(factories.make_user(), "django.contrib.auth.backends.ModelBackend")
    for method in (window.get, window.post):
        assert method("/o/authorize/", asking(program)).status_code == 403
    assert not Grant.objects.exists()


def test_page_needs_its_own_form(person: User, program: Application) -> None:
    """CSRF: another site's form lets nobody in."""
    window = Client(enforce_csrf_checks=True)
    window.force_login(person, "django.contrib.auth.backends.ModelBackend")
    page = window.get("/o/authorize/", asking(program))
    assert window.post("/o/authorize/", {**form_of(page), "allow": "1"}).status_code == 403


def test_page_says_which_rights_the_person_lacks(tenant: Tenant, program: Application) -> None:
    window = Client(headers={"accept-language": "zh-hans"})
    viewer = factories.make_member(tenant, "viewer")
    window.force_login(viewer, "django.contrib.auth.backends.ModelBackend")
    text = window.get("/o/authorize/", asking(program)).content.decode()
    assert text.count("您的角色没有此项权限") == 1
    assert "以您的名义启动任务" in text


def test_code_is_for_one_program_and_one_use(window: Client, program: Application) -> None:
    code = let_in(window, program)["code"]
    other = make_client("Other")
    assert exchange(other, code).json()["error"] == "invalid_grant"
    assert exchange(program, code, code_verifier="x" * 43).json()["error"] == "invalid_grant"
    assert "access_token" in exchange(program, code).json()
    assert exchange(program, code).json()["error"] == "invalid_grant"


def test_only_codes_and_their_renewal_give_tokens(program: Application, person: User) -> None:
    """Every token is a person's who agreed: no passwords, no programs by themselves."""
    robot = make_client(
        "Robot", client_type="confidential", client_secret="s" * 40,
        authorization_grant_type="client-credentials",
    )  # fmt: skip
    login = {"username": person.username, "password": factories.PASSWORD}
    for client, fields in (
        (robot, {"grant_type": "client_credentials", "client_secret": "s" * 40}),
        (program, {"grant_type": "password", **login}),
    ):
        told = Client().post("/o/token/", {"client_id": client.client_id, **fields})
        assert told.json()["error"] in {"unsupported_grant_type", "unauthorized_client"}
    assert not AccessToken.objects.exists()


def test_stolen_renewal_ends_all_that_came_of_it(window: Client, program: Application) -> None:
    """Used twice, one of the two is a thief's: both lose."""
    given = exchange(program, let_in(window, program)["code"]).json()
    renewed = renew(program, given["refresh_token"]).json()
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(given["access_token"])
    tokens.from_token(renewed["access_token"])
    assert renew(program, given["refresh_token"]).json()["error"] == "invalid_grant"
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(renewed["access_token"])


def test_program_ends_its_own_token(window: Client, program: Application) -> None:
    given = exchange(program, let_in(window, program)["code"]).json()
    fields = {"token": given["access_token"], "client_id": program.client_id}
    assert Client().post("/o/revoke_token/", fields).status_code == 200
    with pytest.raises(UnauthenticatedError):
        tokens.from_token(given["access_token"])
    assert renew(program, given["refresh_token"]).json()["error"] == "invalid_grant"


def test_token_lives_an_hour(window: Client, program: Application) -> None:
    given = exchange(program, let_in(window, program)["code"]).json()
    assert given["expires_in"] == 3600
    [row] = AccessToken.objects.all()
    assert 3500 < (row.expires - timezone.now()).total_seconds() <= 3600


def test_person_sees_and_ends_their_programs(
    window: Client, tenant: Tenant, person: User, program: Application
) -> None:
    """One line for each program, however often it was let in; other people's stay."""
    given = [exchange(program, let_in(window, program)["code"]).json() for _ in range(2)]
    web = make_client("Web")
    kept = exchange(web, let_in(window, web)["code"]).json()
    other = factories.make_member(tenant, "submitter")
    theirs = make_token(tenant, other, application=program)
    page = window.get("/o/programs/")
    assert [shown.name for shown, _ in page.context["rows"]] == ["Desk", "Web"]
    assert page.context["rows"][0][0].scopes == ("tasks:create", "tasks:read")
    assert 'href="/o/programs/"' in page.content.decode()
    ended = window.post("/o/programs/", {"client_id": program.client_id}, follow=True)
    assert [shown.name for shown, _ in ended.context["rows"]] == ["Web"]
    for gone in given:
        with pytest.raises(UnauthenticatedError):
            tokens.from_token(gone["access_token"])
        assert renew(program, gone["refresh_token"]).json()["error"] == "invalid_grant"
    tokens.from_token(kept["access_token"])
    tokens.from_token(theirs)
    entry = AuditEntry.objects.filter(stream=f"tenant:{tenant.id}").latest("seq")
    assert json.loads(entry.envelope)["action"] == "oauth.end"


def test_program_that_can_do_nothing_any_more_is_not_shown(
    window: Client, person: User, tenant: Tenant, program: Application
) -> None:
    """What can still be renewed is shown, what has expired for good is not."""
    now = timezone.now()
    make_token(tenant, person, application=program, expires=now - timedelta(seconds=1))
    assert window.get("/o/programs/").context["rows"] == []
    exchange(program, let_in(window, program)["code"])
    AccessToken.objects.update(expires=now - timedelta(seconds=1))
    assert len(window.get("/o/programs/").context["rows"]) == 1
    AccessToken.objects.update(expires=now - timedelta(days=31))
    assert window.get("/o/programs/").context["rows"] == []


def test_programs_need_their_own_form_and_a_member(person: User, program: Application) -> None:
    window = Client(enforce_csrf_checks=True)
    window.force_login(person, "django.contrib.auth.backends.ModelBackend")
    assert window.post("/o/programs/", {"client_id": program.client_id}).status_code == 403
    assert Client().get("/o/programs/").status_code == 302


class Published:
    """What a program publishes about itself, in place of the fetch from the public network."""

    def fetch(self, client_id: str) -> tuple[dict[str, Any], int]:
        document = {
            "client_id": client_id,
            "client_name": "Desk by address",
            "redirect_uris": ["http://localhost/callback", "http://plain.example/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_method": "none",
        }
        return document, 300


def test_program_that_names_itself_by_an_address_is_let_in(
    window: Client, settings: Any, tenant: Tenant
) -> None:
    """It is shown by that address, and may be answered on the person's own machine only."""
    fetcher = f"{__name__}.{Published.__name__}"
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "CIMD_METADATA_FETCHER": fetcher}
    address = "https://desk.example/client.json"
    unknown = Application(client_id=address)
    local = CALLBACK.replace("127.0.0.1", "localhost")
    page = window.get("/o/authorize/", asking(unknown, redirect_uri=local))
    assert "Let Desk by address in?" in page.content.decode()
    assert address in page.content.decode()
    sent = window.post("/o/authorize/", {**form_of(page), "allow": "1"})
    given = exchange(unknown, answer_of(sent)["code"], redirect_uri=local).json()
    assert tokens.from_token(given["access_token"]).principal.tenant_id == tenant.id
    plain = "http://plain.example/callback"
    assert window.get("/o/authorize/", asking(unknown, redirect_uri=plain)).status_code == 400
    assert Application.objects.get().registration_source == "cimd"
