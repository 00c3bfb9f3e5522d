"""The eight acceptance cases of the customer (mission M16), as a client lives them.

Real uvicorn, Celery workers, sweeper, PostgreSQL and Redis; the outside world is a process that
counts. Each test reads as its case does.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from runtime_project.local.processes import wait_until
from tasks_app.models import Attempt
from tests.e2e.site import Site, at_once, id_of
from tests.support.committed import committed
from tests.support.outside import Count, Outside
from tests.support.streams import listen
from tests.support.syncdir import PATIENCE_SECONDS

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    yield from committed(django_db_blocker)


@pytest.fixture(scope="module")
def running(db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One site for all cases: starting its processes takes longer than any of them."""
    with Outside() as outside:
        site = Site(tmp_path_factory.mktemp("site"), outside)
        try:
            site.start()
            yield site
        finally:
            site.stop()


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    yield running
    running.sync.clear()
    running.runs.unlink(missing_ok=True)


def test_1_client_away_for_five_minutes_finds_the_right_picture(site: Site) -> None:
    """The task went on without anybody watching; snapshot, stream and journal fit together."""
    last = site.act("send", approve=True)
    task = site.submit(site.work(), {"op": "sleep", "s": 300}, site.work(), site.work(), last)
    stream = f"{site.web.url}{task['streamUrl']}"
    headers = {"Authorization": f"Bearer {site.submitter.key}"}
    with listen(stream, headers=headers) as events:
        seen = events.next("task.snapshot").data["seq"]
        before = site.wait(task, lambda now: now["stepsDone"] == 1, "asleep")
    site.pass_minutes(task, 5)
    after = site.wait_for(task, "input_required")
    assert after["stepsDone"] > before["stepsDone"]

    with listen(stream, headers=headers) as events:
        assert events.next("task.snapshot").data["seq"] == after["seq"]
        missed = site.list_of(task, "journal", after=seen)
        assert [event["seq"] for event in missed] == list(range(seen + 1, after["seq"] + 1))
        site.approve(task)
        assert events.until("terminal")[-1].data["seq"] > after["seq"]
    assert site.wait_rest(task)["status"] == "completed"


def test_2_worker_killed_in_a_step_another_continues_from_the_checkpoint(site: Site) -> None:
    """What was committed does not run again; the record names checkpoint and fence."""
    site.sync.hold("claim.before")
    policy = {"everySteps": 1, "maxSeconds": 60}
    task = site.submit(*(site.work() for _ in range(4)), checkpointPolicy=policy)
    site.sync.hold(("step.before", "step.after_commit"), id_of(task))
    site.sync.release("claim.before")
    points = ("step.before", "step.after_commit")
    held = site.sync.walk(points, id_of(task), ("step.before", 3))
    newest = site.list_of(task, "checkpoints")[0]
    worker = site.fleet.owner_of(held.pid)
    worker.kill_group()
    site.fleet.replace(worker)
    site.sync.release(points, id_of(task))

    done = site.wait_rest(task)
    assert (done["status"], done["recoveries"]) == ("completed", 1)
    assert site.executions() == ["run_impure", *(f"run_impure.{n}" for n in (2, 3, 4))]
    (record,) = [e for e in site.list_of(task, "audit") if e["action"] == "task.recovered"]
    assert record["details"]["checkpoint"] == newest["seq"] == 2
    assert record["details"]["fence"] > held.fence


def test_3_message_delivered_twice_makes_one_effect(site: Site) -> None:
    """Both workers get it at the same moment; one finds nothing due."""
    site.sync.hold("claim.before")
    task = site.submit(site.act("send"))
    site.send_message(task)
    # A worker that has just ended something looks for more by itself, before it takes a message.
    doors = (id_of(task), None)
    assert wait_until(
        lambda: sum(len(site.sync.hits("claim.before", of)) for of in doors) >= 2,
        seconds=PATIENCE_SECONDS,
    )
    site.sync.release("claim.before")
    assert site.wait_rest(task)["status"] == "completed"
    assert list(site.counts(task).values()) == [Count(requests=1, acts=1)]
    (effect,) = site.list_of(task, "effects")
    assert (effect["state"], effect["attempts"]) == ("succeeded", 1)


def test_4_two_people_with_one_version_one_is_told(site: Site) -> None:
    """Nobody's steering is overwritten: the second one gets 409 and what the task is now."""
    question = {"op": "interrupt", "value": "Which one?"}
    task = site.wait_for(site.submit(question), "input_required")
    answers = at_once(
        lambda: site.anna.steer(task, "pause", reason="I have to think"),
        lambda: site.bert.steer(task, "set_priority", priority=2, reason="it is urgent"),
    )
    assert sorted(answer.status_code for answer in answers) == [202, 409]
    (refused,) = [answer.json() for answer in answers if answer.status_code == 409]
    assert refused["code"] == "version_conflict"
    now = site.snapshot(task)
    assert refused["currentVersion"] == now["stateVersion"] > task["stateVersion"]
    (command,) = site.list_of(task, "commands")
    applied = (now["status"], now["priority"])
    assert (
        applied == {"pause": ("paused", 5), "set_priority": ("input_required", 2)}[command["type"]]
    )


def test_5_pause_before_a_risky_step_and_resume_do_not_cross_the_approval(site: Site) -> None:
    """The same question stands afterwards; only its answer lets the act happen, once."""
    task = site.submit(site.work(), site.act("transfer", approve=True))
    asked = site.wait_for(task, "input_required")
    assert site.anna.steer(asked, "pause", reason="lunch").status_code == 202
    paused = site.wait_for(task, "paused")
    assert site.anna.steer(paused, "resume", reason="back").status_code == 202
    again = site.wait_for(task, "input_required")
    assert site.counts(task) == {}
    approver_sees = site.approver.read(f"/tasks/{task['taskId']}")
    assert approver_sees["openApproval"]["argsSha256"]
    assert again["openApproval"]["id"] == asked["openApproval"]["id"]
    site.approve(task)
    assert site.wait_rest(task)["status"] == "completed"
    assert list(site.counts(task).values()) == [Count(requests=1, acts=1)]


def test_6_changed_checksum_goes_to_a_person_and_executes_nothing(site: Site) -> None:
    """The task is held with the reason; nothing after the checkpoint ran."""
    task = site.submit(site.work(), {"op": "interrupt"}, site.work(), site.act("send"))
    asked = site.wait_for(task, "input_required")
    site.change_newest_checksum(task)
    assert site.anna.steer(asked, "provide_input", reason="go on", answer={}).status_code == 202
    held = site.wait_for(task, "dead_lettered")
    assert held["error"]["code"] == "checkpoint_damaged"
    assert site.executions() == ["run_impure"]
    assert site.counts(task) == {}


def test_7_tool_that_hangs_is_tried_so_often_and_leaves_its_diagnostics(site: Site) -> None:
    """A tool that only reads: three tries, each cut by the step's time-out, then the task fails."""
    name = "slow-tool"
    task = site.submit({"op": "ask", "url": f"{site.outside.url}/hang/{name}"}, site.work())
    failed = site.wait_rest(task)
    assert (failed["status"], failed["stopReason"]) == ("failed", "step_failed")
    assert failed["error"]["type"] == "StepTimeoutError"
    assert site.outside.counts(name)[name].requests == 3
    tries = Attempt.objects.for_tenant(site.tenant.id).filter(task_id=task["taskId"])
    kept = [(a.number, a.error["type"], bool(a.error["trace"])) for a in tries.order_by("number")]
    assert kept == [(number, "StepTimeoutError", True) for number in (1, 2, 3)]
    assert site.executions() == []


def test_7_tool_that_hangs_in_an_act_is_never_repeated_blindly(site: Site) -> None:
    """It may have happened: again under the same key so often, then a person decides."""
    act = {"op": "effect", "key": "x", "patience_seconds": 0.5}
    task = site.submit({**act, "post": f"{site.outside.url}/hang/slow-act"}, site.work())
    held = site.wait_rest(task)
    assert (held["status"], held["error"]["code"]) == ("dead_lettered", "effect_in_doubt")
    (effect,) = site.list_of(task, "effects")
    assert (effect["state"], effect["attempts"]) == ("in_doubt", 2)
    assert effect["error"]["type"] == "ReadTimeout"
    assert site.outside.counts("slow-act")["slow-act"].requests == 2
    assert site.executions() == []


def test_8_cancel_stops_at_a_safe_point_with_its_reason(site: Site) -> None:
    """The running step ends and is kept, the next one never starts, the reason is on record."""
    site.sync.hold("claim.before")
    task = site.submit(site.work(), site.work(), site.act("send"))
    site.sync.hold("step.before", id_of(task))
    site.sync.release("claim.before")
    site.sync.wait_hit("step.before", id_of(task))
    working = site.snapshot(task)
    assert working["status"] == "working"
    told = site.anna.steer(working, "cancel", reason="the customer withdrew")
    assert (told.status_code, told.json()["status"]) == (202, "pending")
    site.sync.release("step.before", id_of(task))

    ended = site.wait_rest(task)
    assert ended["status"] == "cancelled"
    assert site.executions() == ["run_impure"]
    assert [step["status"] for step in site.list_of(task, "steps")] == [
        "succeeded",
        "skipped",
        "skipped",
    ]
    assert site.counts(task) == {}
    (command,) = site.list_of(task, "commands")
    assert (command["status"], command["reason"]) == ("applied", "the customer withdrew")
    reasons = [e["data"].get("reason") for e in site.list_of(task, "journal")]
    assert any("the customer withdrew" in str(reason) for reason in reasons)
