"""Schedules of the runs contract that need a web process to be killed or held (S3, S19)."""

import threading
from typing import Any
from uuid import UUID

import httpx
import pytest

from runtime_project.local.processes import wait_until
from tasks_app.models import Run, Slice
from tests.clients.site import ASSISTANT, PATIENCE_SECONDS, RunSite, say, script
from tests.support.workers import WebProcess

pytestmark = [pytest.mark.crash]


def ask(site: RunSite, method: str, path: str, body: Any = None) -> httpx.Response:
    return httpx.request(
        method, f"{site.url}{path}", json=body, headers={"X-Api-Key": site.key},
        timeout=PATIENCE_SECONDS, trust_env=False,
    )  # fmt: skip


def test_s03_a_run_whose_web_process_was_killed_runs_once(site: RunSite) -> None:
    """S3: killed between the commit and the message: the row is the admission."""
    assert ask(site, "POST", "/threads", {"thread_id": "talk"}).status_code == 200
    site.sync.hold("admit.after_commit")
    body = {"assistant_id": ASSISTANT, "input": script(say("one"))}

    def post() -> None:
        with pytest.raises(httpx.TransportError):
            ask(site, "POST", "/threads/talk/runs", body)

    client = threading.Thread(target=post)
    client.start()
    rows = Run.objects.for_tenant(site.tenant.id)
    assert wait_until(rows.exists, seconds=PATIENCE_SECONDS)
    run_id = rows.get().pk
    site.sync.wait_hit("admit.after_commit", run_id)
    site.web.kill_group()
    site.sync.release("admit.after_commit")
    client.join(PATIENCE_SECONDS)
    site.web = WebProcess("web", site.folder, site.fleet.env, port=site.web.port)
    site.web.wait_ready()
    joined = ask(site, "GET", f"/threads/talk/runs/{run_id}/join").json()
    assert [one["content"] for one in joined["messages"]] == ["one"]
    assert Slice.objects.for_tenant(site.tenant.id).filter(task_id=run_id).count() == 1


def test_s19_a_thread_is_deleted_when_its_run_has_ended(site: RunSite) -> None:
    """S19: refused while the run is at work; afterwards gone for good, its name included."""
    assert ask(site, "POST", "/threads", {"thread_id": "talk"}).status_code == 200
    site.sync.hold("step.before_commit")
    body = {"assistant_id": ASSISTANT, "input": script(say("one", impure=True), say("two"))}
    run = ask(site, "POST", "/threads/talk/runs", body).json()
    place = f"/threads/talk/runs/{run['run_id']}"
    site.sync.wait_hit("step.before_commit", UUID(run["run_id"]))
    assert ask(site, "DELETE", "/threads/talk").status_code == 409
    answers: list[int] = []
    waiting = threading.Thread(
        target=lambda: answers.append(ask(site, "POST", f"{place}/cancel?wait=1").status_code)
    )
    waiting.start()
    rows = Run.objects.for_tenant(site.tenant.id).exclude(cancel_action="")
    assert wait_until(rows.exists, seconds=PATIENCE_SECONDS)
    site.sync.release("step.before_commit")
    waiting.join(PATIENCE_SECONDS)
    assert answers == [204]
    assert ask(site, "DELETE", "/threads/talk").status_code == 204
    assert ask(site, "GET", "/threads/talk/messages").status_code == 404
    assert ask(site, "POST", "/threads", {"thread_id": "talk"}).status_code == 409
