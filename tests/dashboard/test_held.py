"""Rules: held tasks are shown by cause with their evidence, and repaired by plain forms."""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from tasks_app.engine.slice_runner import run_slice
from tasks_app.models import Repair, Step, Task, Tenant
from tasks_app.templatetags.held import CAUSES
from tests import factories
from tests.architecture.sources import ROOT
from tests.dashboard.test_pages import read, start, window
from tests.dashboard.test_writing import steer
from tests.support.damage import damage_newest

pytestmark = pytest.mark.django_db(transaction=True)

DOUBT: list[dict[str, Any]] = [{"op": "effect", "key": "k", "post": "http://127.0.0.1:9/"}]
QUESTION: list[dict[str, Any]] = [
    {"op": "say"}, {"op": "interrupt", "value": "?"}, {"op": "interrupt", "value": "?"},
]  # fmt: skip


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant()


@pytest.fixture
def operator(tenant: Tenant) -> Client:
    return window(factories.make_member(tenant, "operator"))


def doubtful(tenant: Tenant) -> Task:
    """Return a task that is held since nobody knows whether its act has happened."""
    task = start(tenant, DOUBT)
    Task.objects.for_tenant(tenant.pk).filter(pk=task.pk).update(next_wake_at=task.created_at)
    run_slice(task.pk)
    assert read(task.pk).status == "dead_lettered"
    return read(task.pk)


def damaged(tenant: Tenant) -> Task:
    """Return a task that is held since the newer of its checkpoints was changed."""
    task = start(tenant, QUESTION)
    client = window(task.initiator)
    steer(client, task, "provide_input", answer="{}")
    run_slice(task.pk)
    damage_newest(task.pk)
    steer(client, read(task.pk), "provide_input", answer="{}")
    run_slice(task.pk)
    assert read(task.pk).status == "dead_lettered"
    return read(task.pk)


def repair(client: Client, task: Task, verb: str, **more: Any) -> Any:
    posted = {
        "verb": verb, "reason": "because", "expected_version": task.state_version,
        "idempotency_key": uuid4(), **more,
    }  # fmt: skip
    return client.post(f"/tasks/{task.pk}/repair/", posted)


def test_damaged_checkpoint_is_shown_and_repaired(tenant: Tenant, operator: Client) -> None:
    """The panel shows which one, both checksums, those to choose from; the task then goes on."""
    task = damaged(tenant)
    page = operator.get(f"/tasks/{task.pk}/").content.decode()
    assert "Checkpoint damaged" in page
    assert len(re.findall(r'<dd class="digest">[0-9a-f]{64}</dd>', page)) == 2
    assert 'value="continue_from"' in page
    assert 'value="requeue"' not in page
    assert 'value="pause"' not in page
    (number,) = re.findall(r'<option value="(\d+)"', page)
    answer = repair(operator, task, "continue_from", checkpoint=number)
    assert (answer.status_code, answer["Location"]) == (302, f"/tasks/{task.pk}/")
    again = operator.get(answer["Location"]).content.decode()
    assert "Any worker takes it on" in again
    assert "Continue from a checkpoint" in again
    run_slice(task.pk)
    assert read(task.pk).status == "completed"


def test_act_in_doubt_is_shown_and_settled(tenant: Tenant, operator: Client) -> None:
    """Key, digest and what was sent are on the page; done needs a proof, kept text, then goes on."""
    task = doubtful(tenant)
    page = operator.get(f"/tasks/{task.pk}/").content.decode()
    assert f"{task.pk}:act" in page
    assert "127.0.0.1:9" in page
    missing = repair(operator, task, "settle_effect", outcome="done", result='{"key": "x"}')
    text = missing.content.decode()
    assert missing.status_code == 422
    assert 'id="proof-err"' in text
    assert "{&quot;key&quot;: &quot;x&quot;}" in text
    wrong = repair(operator, task, "settle_effect", outcome="done", proof="p", result="{nope")
    assert 'id="result-err"' in wrong.content.decode()
    done = repair(operator, task, "settle_effect", outcome="done", proof="p", result='{"key": "x"}')
    assert done.status_code == 302
    run_slice(task.pk)
    assert read(task.pk).status == "completed"
    assert read(task.pk).result == {"key": "x"}


def test_stale_repair_is_a_conflict_with_the_text_kept(tenant: Tenant, operator: Client) -> None:
    """409 names who was faster and what was done; nothing is sent until the person adopts."""
    task = doubtful(tenant)
    other = window(factories.make_member(tenant, "operator"))
    repair(other, task, "settle_effect", outcome="not_done", hold="yes")
    answer = repair(operator, task, "fork", reason="my long reason")
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "my long reason" in text
    assert "Settle the act" in text
    now = read(task.pk)
    adopted = repair(
        operator, task, "", was="fork", reason="my long reason", adopt=now.state_version
    )
    assert f'name="expected_version" value="{now.state_version}"' in adopted.content.decode()
    assert read(task.pk).status == "dead_lettered"
    forked = repair(operator, now, "fork", goal='{"note": "n"}')
    new = Task.objects.for_tenant(tenant.pk).get(forked_from_id=task.pk)
    assert forked["Location"] == f"/tasks/{new.pk}/"


def test_task_that_is_held_no_more_says_so(tenant: Tenant, operator: Client) -> None:
    """A form from before is not an error page; the held task can also be cancelled from the panel."""
    task = doubtful(tenant)
    page = operator.get(f"/tasks/{task.pk}/").content.decode()
    assert f'formaction="/tasks/{task.pk}/steer/"' in page
    assert repair(operator, task, "close").status_code == 302
    late = repair(operator, task, "fork")
    assert late.status_code == 302
    assert "not held any more" in operator.get(late["Location"]).content.decode()


def test_viewer_sees_the_evidence_and_no_usable_button(tenant: Tenant) -> None:
    """Capabilities are named; what was sent is for those who read the ledger; a post is refused."""
    task = doubtful(tenant)
    viewer = window(factories.make_member(tenant, "viewer"))
    page = viewer.get(f"/tasks/{task.pk}/").content.decode()
    assert "Needs the capability deadletters:manage." in page
    assert "Needs the capability ledger:read." in page
    assert "127.0.0.1:9" not in page.split('id="body"')[0]
    assert repair(viewer, task, "close").status_code == 403
    assert "Held tasks" in viewer.get("/dead-letters/").content.decode()


def test_held_page_groups_by_cause(tenant: Tenant, operator: Client) -> None:
    """Counts and the longest held of each cause; another tenant's are not there; the menu counts."""
    owner = factories.make_member(tenant, "submitter")
    for number in range(7):
        factories.make_task(
            tenant=tenant, initiator=owner, status="dead_lettered", title=f"worn {number}"
        )
    factories.make_task(
        tenant=tenant, status="dead_lettered", error={"code": "never_heard_of", "message": "?"}
    )
    factories.make_task(status="dead_lettered", title="foreign")
    page = operator.get("/dead-letters/").content.decode()
    assert "Too many recoveries" in page
    assert "Never heard of" in page
    assert '<span class="count hot">8<' in page
    assert ("worn 4" in page, "worn 5" in page, "foreign" in page) == (True, False, False)
    assert operator.get("/dead-letters/live/").content.count(b"<hx-partial") == 1
    one = operator.get("/dead-letters/too_many_recoveries/").content.decode()
    assert "worn 6" in one
    assert "/dead-letters/too_many_recoveries/requeue/" in one


def test_many_are_previewed_and_repaired(tenant: Tenant, operator: Client) -> None:
    """The preview changes nothing; one that moved meanwhile is refused alone; a retry adds nothing."""
    tasks = [factories.make_task(tenant=tenant, status="dead_lettered") for _ in range(3)]
    address = "/dead-letters/too_many_recoveries/requeue/"
    preview = operator.get(address)
    page = preview.content.decode()
    assert "3 tasks will be repaired" in page
    Task.objects.for_tenant(tenant.pk).filter(pk=tasks[0].pk).update(state_version=9)
    posted = {
        "bulk_id": preview.context["bulk_id"],
        "task": re.findall(r'name="task" value="([^"]+)"', page),
        "reason": " ",
    }
    refused = operator.post(address, posted)
    assert refused.status_code == 422
    assert 'id="reason-err"' in refused.content.decode()
    outcome = operator.post(address, posted | {"reason": "workers are back"}).content.decode()
    assert "2 of 3 repaired" in outcome
    operator.post(address, posted | {"reason": "workers are back"})
    assert Repair.objects.for_tenant(tenant.pk).count() == 2
    assert operator.get("/dead-letters/too_many_recoveries/dance/").status_code == 404


def test_many_acts_are_settled_alike(tenant: Tenant, operator: Client) -> None:
    """The verb's own fields stand beside the reason and are checked."""
    task = doubtful(tenant)
    address = "/dead-letters/effect_in_doubt/settle_effect/"
    posted = {"bulk_id": uuid4(), "task": f"{task.pk}:{task.state_version}", "reason": "r"}
    assert 'id="outcome-err"' in operator.post(address, posted).content.decode()
    assert "1 of 1" in operator.post(address, posted | {"outcome": "call_again"}).content.decode()
    assert read(task.pk).status == "queued"


def test_causes_are_explained_in_the_docs() -> None:
    """docs/explanation/held-tasks.md has one row for each cause that the pages know."""
    page = (ROOT / "docs/explanation/held-tasks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == CAUSES.keys()


@pytest.mark.parametrize(("status", "word"), [("dead_lettered", "Held"), ("paused", "Paused")])
@pytest.mark.parametrize("suffix", ["", "steps/"])
def test_step_of_a_task_that_stands_still_does_not_run(status: str, word: str, suffix: str) -> None:
    """Its word tells that nobody works on it, and its time no longer grows."""
    task = factories.make_task(status=status)
    Step.objects.create(
        tenant=task.tenant, task=task, key="a", position=0, kind="step", method="a",
        status="running", arguments={}, options={}, signature="x", plan_version=1, fence=1,
        started_at=task.updated_at - timedelta(seconds=3),
    )  # fmt: skip
    client = Client()
    client.force_login(task.initiator)
    page = client.get(f"/tasks/{task.pk}/{suffix}")
    [step] = page.context["steps"]
    assert (step.status, round(step.seconds)) == (words_of(status), 3)
    assert word in page.content.decode()


def words_of(status: str) -> str:
    return {"dead_lettered": "held"}.get(status, status)
