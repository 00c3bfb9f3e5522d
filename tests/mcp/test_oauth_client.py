"""The official Python client signs its person in, by code with PKCE; and tokens on real processes."""

import asyncio
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httpx
import httpx2
import pytest
from django.contrib.auth.models import User
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from mcp_types import CallToolResult
from oauth2_provider.models import AccessToken
from pydantic import AnyUrl

from tasks_app.models import Membership, Task
from tests import factories
from tests.mcp.site import McpSite, Wire
from tests.mcp.test_doors import Listening
from tests.mcp.test_python_client import PATIENCE_SECONDS, TasksExtension
from tests.mcp.test_tasks import rows, until
from tests.oauth.door import challenge_of, make_client, make_token

pytestmark = pytest.mark.crash

CALLBACK = "http://127.0.0.1:53211/callback"
STARTING = ["tasks:create", "tasks:read"]


class Memory:
    """Where the client keeps what it has; it was registered before."""

    def __init__(self, client_id: str) -> None:
        self.client = OAuthClientInformationFull(
            client_id=client_id,
            redirect_uris=[AnyUrl(CALLBACK)],
            token_endpoint_auth_method="none",
        )
        self.tokens: OAuthToken | None = None
        self.kept: list[OAuthToken] = []

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens
        self.kept.append(tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("nothing is registered")


class Person:
    """Somebody at a browser: signs in when asked to, and lets programs in."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.asked: list[dict[str, str]] = []
        self.sent: dict[str, str] = {}
        self._cookies = httpx.Cookies()

    async def visit(self, address: str) -> None:
        """Follow the address that a program opened, up to where it waits for an answer."""
        self.asked.append({k: v[0] for k, v in parse_qs(urlsplit(address).query).items()})
        async with httpx.AsyncClient(
            cookies=self._cookies, trust_env=False, timeout=30, follow_redirects=True
        ) as browser:
            page = await browser.get(address)
            if page.url.path == "/login/":
                login = {"username": self.user.username, "password": factories.PASSWORD}
                page = await browser.post(page.url, data={**_hidden(page), **login})
            assert page.url.path == "/o/authorize/", page.text
            fields = {**_hidden(page), "allow": "1"}
            answer = await browser.post(page.url, data=fields, follow_redirects=False)
            self._cookies = browser.cookies
        assert answer.headers["location"].startswith(CALLBACK), answer.text
        query = parse_qs(urlsplit(answer.headers["location"]).query)
        self.sent = {name: values[0] for name, values in query.items()}

    async def answer(self) -> AuthorizationCodeResult:
        """Return what the browser was sent to the program with."""
        return AuthorizationCodeResult(
            code=self.sent["code"], state=self.sent["state"], iss=self.sent["iss"]
        )


def _hidden(page: httpx.Response) -> dict[str, str]:
    """Return the hidden fields of the form in the middle of a page."""
    form = page.text.partition('<main id="main"')[2]
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form)
    return {name: value.replace("&amp;", "&") for name, value in fields}


@pytest.fixture
def person(site: McpSite) -> Person:
    user = factories.make_user(username=f"person-{uuid4().hex[:12]}")
    factories.make_member(site.tenant, "submitter", user)
    return Person(user)


def signed_in(site: McpSite, person: Person, memory: Memory, label: str) -> CallToolResult:
    """Return what a tool answers to a client that has nothing but the address."""

    async def used() -> CallToolResult:
        metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(CALLBACK)], client_name="Desk")
        sign_in = OAuthClientProvider(site.url(), metadata, memory, person.visit, person.answer)
        async with httpx2.AsyncClient(auth=sign_in, trust_env=False, timeout=60) as http:
            transport = streamable_http_client(site.url(), http_client=http)
            async with asyncio.timeout(PATIENCE_SECONDS):
                async with Client(transport, mode="auto", extensions=[TasksExtension()]) as client:
                    return await client.call_tool("slow_compute", {"seconds": 0, "label": label})

    return asyncio.run(used())


def test_client_with_only_the_address_signs_in_and_starts_a_task(
    site: McpSite, person: Person
) -> None:
    """Discovery, sign-in, consent, code with PKCE, token, task; the token serves the next time."""
    memory = Memory(make_client("Desk").client_id)
    told = signed_in(site, person, memory, "first")
    assert told.content[0].text == "computed first"
    [asked] = person.asked
    assert asked["scope"] == "tasks:create tasks:read"
    assert asked["resource"] == site.resource
    assert asked["code_challenge_method"] == "S256"
    [task] = Task.objects.for_tenant(site.tenant.id)
    assert task.initiator_id == person.user.pk
    again = signed_in(site, person, memory, "second")
    assert again.content[0].text == "computed second"
    assert len(person.asked) == 1


def test_client_renews_a_token_by_itself(site: McpSite, person: Person) -> None:
    """An expired token costs no person's time."""
    memory = Memory(make_client("Desk").client_id)
    signed_in(site, person, memory, "first")
    assert memory.tokens is not None
    memory.tokens = memory.tokens.model_copy(update={"access_token": "", "expires_in": None})
    told = signed_in(site, person, memory, "second")
    assert told.content[0].text == "computed second"
    assert len(memory.kept) == 2
    assert memory.kept[0].access_token != memory.kept[1].access_token


def test_client_asks_for_more_when_a_token_is_too_narrow(site: McpSite, person: Person) -> None:
    """What the refusal names is added to what there was."""
    memory = Memory(make_client("Desk").client_id)
    signed_in(site, person, memory, "first")
    held = AccessToken.objects.filter(user=person.user)
    held.update(scope="tasks:read")
    memory.tokens = memory.kept[-1].model_copy(update={"scope": "tasks:read"})
    told = signed_in(site, person, memory, "second")
    assert told.content[0].text == "computed second"
    assert set(person.asked[1]["scope"].split()) == {"tasks:create", "tasks:read"}


def token_of(site: McpSite, settings: Any, user: User, scopes: list[str]) -> str:
    settings.MCP_RESOURCE_URL = site.resource
    return make_token(site.tenant, user, scopes)


def test_reading_token_starts_nothing_on_real_processes(
    site: McpSite, person: Person, settings: Any
) -> None:
    token = token_of(site, settings, person.user, ["tasks:read"])
    params = {"name": "slow_compute", "arguments": {"seconds": 0}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    for web in (0, 1):
        wire = Wire(site.url(web), token)
        refusals = [wire.post("tools/call", params)]
        refusals += [wire.legacy(body, version) for version in ("2025-11-25", "2025-06-18", None)]
        for refused in refusals:
            assert refused.status_code == 403
            told = challenge_of(refused)
            assert told["error"] == "insufficient_scope"
            assert told["scope"] == "tasks:create tasks:read"
            well_known = "/.well-known/oauth-protected-resource/mcp"
            assert told["resource_metadata"] == site.resource.replace("/mcp", well_known)
            document = httpx.get(told["resource_metadata"], trust_env=False).json()
            assert document["resource"] == site.resource
    assert rows(site) == 0


def test_foreign_and_unknown_tasks_are_one_answer_to_a_token(
    site: McpSite, person: Person, settings: Any
) -> None:
    """S29, on every process and for every method."""
    mine = Wire(site.url(), token_of(site, settings, person.user, STARTING))
    foreign = site.client().call("slow_compute", {"seconds": 0})["taskId"]
    own = mine.call("slow_compute", {"seconds": 0})["taskId"]
    until(mine, own, "completed")
    wide = Wire(site.url(1), token_of(site, settings, person.user, [
        "tasks:read", "tasks:cancel", "tasks:steer",
    ]))  # fmt: skip
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        told = {
            wide.post(method, {"taskId": task, "inputResponses": {}}).text
            for task in (foreign, str(uuid4()))
        }
        assert len(told) == 1


def test_stream_ends_when_its_owner_leaves(site: McpSite, person: Person, settings: Any) -> None:
    """A7: a token that has opened a stream is asked for again while it is open."""
    client = Wire(site.url(), token_of(site, settings, person.user, STARTING))
    task = client.call("slow_compute", {"seconds": 600})["taskId"]
    with Listening(client, taskIds=[task]) as stream:
        stream.next()
        assert stream.next()["params"]["status"] == "working"
        Membership.objects.for_tenant(site.tenant.id).filter(user=person.user).update(
            status="disabled"
        )
        assert set(stream.end()[0]) <= {"working"}
    assert client.post("tasks/get", {"taskId": task}).status_code == 401
