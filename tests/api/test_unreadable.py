"""Rules S124 and A39 at addresses, forms and cookies: text with U+0000 is refused, never a 500."""

import pytest
from django.test import Client

from tasks_app.models import Tenant
from tests.api.calls import api_of
from tests.factories import make_member, make_tenant, make_user

pytestmark = pytest.mark.django_db

REST = (
    *(f"/runtime/tasks?{name}=%00" for name in ("q", "workflow", "status", "cursor", "%00")),
    "/runtime/dead-letters?cause=%00",
    "/runtime/approvals?cursor=a%00",
    "/runtime/keys?limit=%00",
    f"/runtime/tasks?{'&'.join(f'a{number}=1' for number in range(1001))}",
    "/stream/tenant/?lastEventId=%00",
)
PAGES = (
    "/login/?next=/%00",
    "/tasks/?workflow=%00",
    "/tasks/?q=a%00b",
    "/tasks/new/%00/",
    "/tasks/new/?from=%00",
    "/dead-letters/?cursor=%00",
    "/approvals/?tab=%00",
    "/admin/tasks_app/task/?status__exact=%00",
    "/admin/tasks_app/task/?q=%00",
    "/admin/tasks_app/task/%00/change/",
    "/admin/ledger_app/effect/?state__exact=%00",
)
FORMS = (
    ("/login/", {"username": "a\x00", "password": "b"}),
    ("/tenant/", {"tenant": "\x00"}),
    ("/language/", {"language": "en", "next": "/\x00"}),
    ("/admin/tasks_app/task/", {"action": "pause_tasks", "_selected_action": "\x00"}),
)


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant()


@pytest.fixture
def client(tenant: Tenant) -> Client:
    """Return a window of somebody who may see every page."""
    user = make_user(is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(make_member(tenant, ["admin", "operator", "submitter"], user=user))
    return client


@pytest.mark.parametrize("path", REST)
def test_rest_refuses_unreadable_text_in_queries(tenant: Tenant, path: str) -> None:
    """The usual 400 with a request id, and where the text stands."""
    answer = api_of(tenant, "admin", "operator").get(path)
    body = answer.json()
    assert (answer.status_code, body["code"]) == (400, "invalid_query")
    assert body["errors"][0]["pointer"].startswith("?")
    assert body["requestId"] == answer.headers["X-Request-Id"]


@pytest.mark.parametrize("path", PAGES)
def test_pages_refuse_unreadable_text_in_addresses(client: Client, path: str) -> None:
    """Pages and admin answer 400 with the page for it, in the path and in the query."""
    answer = client.get(path)
    assert answer.status_code == 400
    assert b"U+0000" in answer.content


@pytest.mark.parametrize(("path", "form"), FORMS)
def test_forms_with_unreadable_text_are_refused(
    client: Client, path: str, form: dict[str, str]
) -> None:
    """What a form carries gets no further either."""
    assert client.post(path, form).status_code == 400


@pytest.mark.parametrize("path", ["/tasks/", "/nowhere", "/runtime/tasks"])
def test_unreadable_cookie_counts_as_not_sent(client: Client, path: str) -> None:
    """Whoever sends such a session is nobody, and gets no server error."""
    client.cookies.load({"rt_session": "\x00aaaaaaaa", "rt_language": "\x00", "rt_theme": "\x00"})
    wanted = {"/tasks/": 302, "/nowhere": 404, "/runtime/tasks": 401}[path]
    assert client.get(path).status_code == wanted
