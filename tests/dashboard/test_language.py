"""Rules: a person chooses a language, and every page and the admin then speak it."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from typing_extensions import override

from tasks_app.admin.base import ReadOnlyAdmin
from tasks_app.admission.principal import from_user
from tasks_app.admission.tasks import admit_task
from tasks_app.dashboard.taskpage import TABS
from tasks_app.engine.slice_runner import run_slice
from tasks_app.models import Approval, Task, Tenant
from tasks_app.workflows import registry
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)

CHINESE = {settings.LANGUAGE_COOKIE_NAME: "zh-hans"}
EVERY_ROLE = ["submitter", "operator", "approver", "admin", "auditor"]
CONTRACT = (
    "This agreement renews automatically for successive terms of one year. "
    "The supplier's liability is unlimited. Either party may terminate on 30 days' notice."
)
# Names that are the same in every language, and values that a person types as they stand.
ALLOWED = frozenset(
    {
        *("Perdure", "JSON", "HTTP", "https", "REST", "Webhook", "docx", "html", "token", "null"),
        *("drafts", "liability", "indemnity", "term", "confidentiality", "disputes", "transfer"),
        *("warranty", "copyleft", "patents", "privacy", "restraint", "audit", "payment"),
        *("notices", "trademark", "export", "charset"),
    }
)
# A word that is no part of an address, a path, a dotted code, a media type or a placeholder.
ENGLISH = re.compile(r"(?<![\w./:@#{-])[A-Za-z]{4,}(?![\w/:@#}-]|\.\w)")


class Visible(HTMLParser):
    """Collects what a person reads or hears, except code, ids and names people gave."""

    SKIPPED = frozenset({"script", "style", "pre", "code"})
    SKIPPED_CLASSES = frozenset({"mono", "digest", "who", "cmds"})
    VOID = frozenset({"area", "br", "col", "hr", "img", "input", "link", "meta", "use", "wbr"})
    SPOKEN = frozenset({"title", "aria-label", "placeholder", "alt"})

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.open: list[tuple[str, bool]] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = set((given.get("class") or "").split())
        hidden = (
            tag in self.SKIPPED
            or bool(classes & self.SKIPPED_CLASSES)
            or given.get("lang") == "en"
            or any(off for _tag, off in self.open)
        )
        if not hidden:
            spoken = self.SPOKEN | {name for name in given if name.startswith("data-t")}
            self.parts += [given[name] or "" for name in spoken & given.keys()]
        if tag not in self.VOID:
            self.open.append((tag, hidden))

    @override
    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    @override
    def handle_data(self, data: str) -> None:
        if not any(off for _tag, off in self.open):
            self.parts.append(data)


def english_words(page: bytes, names: list[str]) -> set[str]:
    """Return the English words of a page that are neither names, codes nor given by people."""
    reader = Visible()
    reader.feed(page.decode())
    text = "\n".join(reader.parts)
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, " ")
    return {word for word in ENGLISH.findall(text) if word not in ALLOWED}


def window(user: User) -> Client:
    """Return a signed-in client that reads Chinese."""
    client = Client()
    client.force_login(user)
    client.cookies.load(CHINESE)
    return client


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant(name="示例")


@pytest.fixture
def task(tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """Return a review that waits for its approval."""
    monkeypatch.setitem(settings.RUNTIME, "input_roots", (tmp_path,))
    monkeypatch.setitem(settings.RUNTIME, "publish_roots", (tmp_path / "发布",))
    folder = tmp_path / "合同"
    folder.mkdir()
    (folder / "甲.txt").write_text(CONTRACT, encoding="utf-8")
    owner = factories.make_member(tenant, EVERY_ROLE, user=factories.make_user(is_staff=True))
    goal = {"folder": str(folder), "publish_to": str(tmp_path / "发布"), "language": "zh"}
    made = admit_task(
        from_user(owner, tenant.pk),
        workflow="contracts.review",
        goal=goal,
        title="审阅",
        source="dashboard",
    )
    while run_slice(made.task_id) not in {"idle", "lost"}:
        pass
    return Task.objects.all_tenants("test").get(pk=made.task_id)


def names_of(task: Task) -> list[str]:
    """Return what people and programs named: user, worker, agent, folder, steps."""
    return [
        task.initiator.get_username(), task.agent.name, str(task.goal["folder"]),
        str(task.goal["publish_to"]), "contracts.review", "publish_report", "load_manifest",
        "review_document", "write_report", "finish", *words_of_test_workflows(),
    ]  # fmt: skip


def words_of_test_workflows() -> list[str]:
    """Return how workflows call themselves that only tests know; nobody translates them."""
    known = [info for info in registry.list_workflows() if info.name != "contracts.review"]
    return [word for info in known for word in (info.name, info.title, info.description) if word]


def addresses(task: Task) -> list[str]:
    """Return the pages of the dashboard."""
    approval = Approval.objects.all_tenants("test").get(task=task)
    base = f"/tasks/{task.pk}/"
    return [
        "/tasks/", "/tasks/?q=nothing", "/tasks/new/", "/tasks/new/contracts.review/",
        *(base if tab == "overview" else f"{base}{tab}/" for tab in TABS),
        f"{base}goal/", f"{base}steer/", "/approvals/", "/approvals/?tab=decided", "/o/programs/",
        f"/approvals/{approval.pk}/", "/nothing-here/",
    ]  # fmt: skip


def test_pages_speak_chinese(task: Task) -> None:
    """No English on any page, except codes, ids and what people wrote (B17)."""
    client = window(task.initiator)
    found = {
        address: english_words(client.get(address).content, names_of(task))
        for address in addresses(task)
    }
    assert {address: words for address, words in found.items() if words} == {}


def test_ended_task_speaks_chinese(task: Task) -> None:
    """A task that ended says so in Chinese too, with its report."""
    person = factories.make_member(task.tenant, ["approver"])
    decider = window(person)
    approval = Approval.objects.all_tenants("test").get(task=task)
    posted = {
        "version": approval.version, "args_sha256": approval.args_sha256,
        "decision": "approve", "reason": "好",
    }  # fmt: skip
    decided = decider.post(f"/approvals/{approval.pk}/", posted, follow=True)
    assert "已批准" in decided.content.decode()
    while run_slice(task.pk) not in {"idle", "lost"}:
        pass
    client = window(task.initiator)
    pages = [client.get(address).content for address in addresses(task) if str(task.pk) in address]
    assert "已完成" in pages[0].decode()
    names = [*names_of(task), person.get_username()]
    assert set().union(*(english_words(page, names) for page in pages)) == set()


def test_login_speaks_chinese() -> None:
    """The first page that anybody meets, with a refusal."""
    client = Client()
    client.cookies.load(CHINESE)
    page = client.post("/login/", {"username": "x", "password": "y"})
    assert english_words(page.content, []) == set()


@pytest.mark.slow
def test_admin_speaks_chinese(task: Task) -> None:
    """Front page, every list and one page of each model (B17)."""
    client = window(task.initiator)
    found = {"index": english_words(client.get(reverse("admin:index")).content, names_of(task))}
    request = type("R", (), {"user": task.initiator, "session": {}})()
    for model, pages in admin.site._registry.items():
        if not isinstance(pages, ReadOnlyAdmin):
            continue
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        answers = [client.get(reverse(f"{name}_changelist"))]
        row: Any = pages.get_queryset(request).first()
        if row is not None:
            answers.append(client.get(reverse(f"{name}_change", args=[row.pk])))
        found[model.__name__] = set().union(
            *(english_words(answer.content, names_of(task)) for answer in answers)
        )
    assert {name: words for name, words in found.items() if words} == {}


def test_forms_answer_in_chinese(task: Task) -> None:
    """What a form says about its fields, and a conflict of versions."""
    client = window(task.initiator)
    empty = client.post("/tasks/new/contracts.review/", {"priority": "x"}).content
    stale = {"type": "pause", "reason": "因为", "expected_version": "1"}
    stale["idempotency_key"] = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    conflict = client.post(f"/tasks/{task.pk}/steer/", stale).content
    assert "此字段必填" in empty.decode()
    assert "指令未发送" in conflict.decode()
    assert english_words(empty, names_of(task)) | english_words(conflict, names_of(task)) == set()


def test_refusals_are_told_in_chinese(task: Task) -> None:
    """What admission refuses is worded by its code; the text typed is kept (U20)."""
    client = window(task.initiator)
    form = {"title": "审阅", "goal/folder": "/不存在/", "goal/language": "zh", "priority": "99"}
    refused = client.post("/tasks/new/contracts.review/", form).content
    silent = {"type": "pause", "reason": "", "expected_version": str(task.state_version)}
    silent["idempotency_key"] = "7d444840-9dc0-11d1-b245-5ffdce74fad3"
    unsaid = client.post(f"/tasks/{task.pk}/steer/", silent).content
    viewer = window(factories.make_member(task.tenant, "viewer"))
    barred = viewer.get("/tasks/new/").content
    assert "请说明原因" in unsaid.decode()
    assert "您没有此操作所需的权限" in barred.decode()
    names = [*names_of(task), "tasks:create", "user"]
    assert set().union(*(english_words(p, names) for p in (refused, unsaid, barred))) == set()


def test_switch_keeps_the_language_and_leads_back(task: Task) -> None:
    """A plain form sets the cookie; pages and admin carry it as `lang`."""
    client = Client()
    client.force_login(task.initiator)
    before = client.get("/tasks/").content.decode()
    assert '<html lang="en"' in before
    assert 'value="zh-hans" lang="zh-hans">简体中文</button>' in before
    answer = client.post("/language/", {"language": "zh-hans", "next": "/approvals/"})
    assert answer.headers["Location"] == "/approvals/"
    cookie = answer.cookies[settings.LANGUAGE_COOKIE_NAME]
    assert (cookie.value, cookie["samesite"]) == ("zh-hans", "Lax")
    assert '<html lang="zh-hans"' in client.get("/approvals/").content.decode()
    assert '<html lang="zh-hans"' in client.get("/admin/").content.decode()
    client.post("/language/", {"language": "en"})
    assert '<html lang="en"' in client.get("/tasks/").content.decode()


def test_switch_refuses_what_it_does_not_know() -> None:
    """Only posts count, only known languages are kept, and only this site is led back to."""
    client = Client()
    assert client.get("/language/").status_code == 405
    answer = client.post("/language/", {"language": "xx", "next": "https://example.org/"})
    assert settings.LANGUAGE_COOKIE_NAME not in answer.cookies
    assert answer.headers["Location"] == "/"
    checked = Client(enforce_csrf_checks=True)
    assert checked.post("/language/", {"language": "zh-hans"}).status_code == 403


def test_browser_language_is_the_first_choice() -> None:
    """Without a cookie a page follows Accept-Language."""
    page = Client().get("/login/", headers={"Accept-Language": "zh-CN,zh;q=0.9"})
    assert '<html lang="zh-hans"' in page.content.decode()
