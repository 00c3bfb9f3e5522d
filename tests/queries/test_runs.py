"""Runs, threads and what was said in them, as the run door reads them."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from ledger_app.services import usage
from tasks_app.admission import runs as writing
from tasks_app.admission import threads as threads_writing
from tasks_app.domain.run_bodies import parse
from tasks_app.domain.runs import RunStatus, Slot, Strategy, ThreadStatus, run_status, thread_status
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import lease
from tasks_app.models import Run
from tasks_app.queries import conversations, runs, thread_states, threads
from tasks_app.queries.conversations import Window, thread_seq
from tasks_app.queries.threads import ThreadFilters
from tests.factories import make_task
from tests.support.engine import Engine

pytestmark = pytest.mark.django_db


@pytest.fixture
def engine(db: None) -> Iterator[Engine]:
    yield Engine()
    lease.stop_keeper()


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"op": "say", "text": text, **more}


def make_thread(engine: Engine) -> threads.ThreadRow:
    key = threads_writing.create_thread(engine.submitter, key=None, metadata={}).key
    return threads.get_thread(engine.submitter, key)


def make_run(
    engine: Engine, thread: threads.ThreadRow, *script: dict[str, Any], **more: Any
) -> Any:
    body = {"assistant_id": "scripted", "input": {"script": list(script)}, **more}
    made = writing.create_run(engine.submitter, thread_key=thread.key, body=parse(body))
    return made.task_id


def driven(engine: Engine, thread: threads.ThreadRow, *texts: str) -> Any:
    task_id = make_run(engine, thread, *map(say, texts))
    engine.drive(task_id)
    return task_id


def stand(engine: Engine, **columns: Any) -> threads.ThreadRow:
    """Return a thread whose one run stands so; only rows, nothing executes them."""
    thread, action = make_thread(engine), columns.pop("cancel_action")
    person = User.objects.get(pk=engine.submitter.user_id or 0)
    task = make_task(tenant=engine.tenant, initiator=person, thread_id=thread.id, **columns)
    Run.objects.create(
        task=task, tenant=engine.tenant, thread_id=thread.id, number=1, slot=Slot.RELEASED,
        strategy=Strategy.REJECT, cancel_action=action,
    )  # fmt: skip
    return thread


@pytest.mark.slow
def test_lists_by_status_agree_with_the_status_that_is_shown(engine: Engine) -> None:
    """For every status of a task, started or not, cancelled or not: found under its own word only."""
    for status, started, action, reason in itertools.product(
        TaskStatus, (None, timezone.now()), ("", "rollback", "interrupt"), ("", "max_duration")
    ):
        thread = stand(
            engine, status=status, started_at=started, cancel_action=action, stop_reason=reason
        )
        shown = run_status(status, action, reason, has_started=started is not None)
        found = [
            wanted for wanted in RunStatus
            if runs.list_runs(engine.submitter, thread.id, status=wanted)
        ]  # fmt: skip
        assert found == [shown], (status, started, action, reason)
        seen = [
            wanted for wanted in ThreadStatus
            if threads.search_threads(
                engine.submitter, ThreadFilters(status=wanted, keys=[thread.key])
            )
        ]  # fmt: skip
        assert seen == [thread_status(status, action)], status


def test_a_list_of_runs_costs_the_same_for_one_and_many(
    engine: Engine, django_assert_num_queries: Any
) -> None:
    """Runs, their usage with that of their children, their messages: no query for each run."""
    thread = make_thread(engine)
    for text in "abc":
        driven(engine, thread, text)
    with django_assert_num_queries(4):
        found = runs.list_runs(engine.submitter, thread.id)
    assert [row.head.number for row in found] == [3, 2, 1]
    assert [row.message_count for row in found] == [1, 1, 1]


def test_numbers_in_the_thread_grow_over_its_runs(engine: Engine) -> None:
    """No event of a later run comes before one of an earlier run."""
    thread = make_thread(engine)
    for text in "abc":
        driven(engine, thread, text)
    found = conversations.list_messages(engine.submitter, thread.id, Window())
    numbers = [event.thread_seq for event in found.events]
    assert numbers == sorted(set(numbers))
    assert [event.data["content"] for event in found.events] == ["a", "b", "c"]
    assert numbers[0] < thread_seq(2, 1) < numbers[1]


def test_pages_of_messages_meet(engine: Engine) -> None:
    """Backwards from the newest and forwards from the first: the same messages, each once."""
    thread = make_thread(engine)
    for text in ("ab", "cd", "e"):
        driven(engine, thread, *text)
    said: list[str] = []
    before = None
    while True:
        page = conversations.list_messages(engine.submitter, thread.id, Window(2, before=before))
        said = [event.data["content"] for event in page.events] + said
        if not page.more:
            break
        before = page.events[0].thread_seq
    assert said == list("abcde")
    after, forwards = 1, []
    while True:
        page = conversations.list_messages(engine.submitter, thread.id, Window(2, after=after))
        forwards += [event.data["content"] for event in page.events]
        if not page.more:
            break
        after = page.events[-1].thread_seq
    assert forwards == said


def test_hidden_runs_are_not_seen(engine: Engine) -> None:
    """A deleted run is in no list; its task stays."""
    thread = make_thread(engine)
    task_id = driven(engine, thread, "a")
    writing.delete_run(engine.submitter, task_id=task_id)
    assert runs.list_runs(engine.submitter, thread.id) == ()
    assert conversations.list_messages(engine.submitter, thread.id, Window()).events == ()
    assert engine.task(task_id).status == "completed"


def test_every_state_in_between_folds_to_the_stored_one(engine: Engine) -> None:
    """The state after the last event is what the engine stored when the run ended."""
    thread = make_thread(engine)
    driven(engine, thread, "a", "b")
    task_id = make_run(engine, thread, say("c"), {"op": "set", "values": {"colour": "red"}})
    engine.drive(task_id)
    head = runs.get_head(engine.submitter, task_id)
    stored = thread_states.values_of(engine.submitter, head)
    folded = thread_states.fold(engine.submitter, head, head.seq)
    assert {**folded, "result": stored["result"]} == stored
    assert stored["colour"] == "red"
    assert [message["content"] for message in stored["messages"]] == ["a", "b", "c"]


def test_usage_of_a_thread_is_the_sum_over_its_runs(engine: Engine) -> None:
    """R75: by model and by caller it is the same total; active runs only when asked for."""
    thread = make_thread(engine)
    driven(engine, thread, "a")
    first = runs.list_runs(engine.submitter, thread.id)[0].head.task_id
    waiting = make_run(engine, thread, say("b"))
    for task_id, source, caller, model in (
        (first, "1", "step", "large"), (first, "2", "middleware", "small"),
        (waiting, "3", "step", "large"),
    ):  # fmt: skip
        usage.record(
            tenant_id=engine.tenant.id, task_id=task_id, source_id=source, caller=caller,
            model=model, input_tokens=10, output_tokens=2, cost_micros=0, currency="EUR",
        )  # fmt: skip
    found = runs.usage_of_thread(engine.submitter, thread.id)
    assert (found.runs, found.total.total_tokens) == (1, 24)
    assert found.total.by_caller == {"lead_agent": 12, "subagent": 0, "middleware": 12}
    assert sum(used.tokens for used in found.by_model.values()) == 24
    everything = runs.usage_of_thread(engine.submitter, thread.id, include_active=True)
    assert (everything.runs, everything.total.total_tokens) == (2, 36)
    assert everything.by_model["large"].runs == 2


def test_own_only_people_see_their_own_threads(engine: Engine) -> None:
    """Another submitter of the tenant finds neither thread nor run; an operator finds both."""
    thread = make_thread(engine)
    task_id = driven(engine, thread, "a")
    other = engine.person("submitter")
    assert threads.search_threads(other, ThreadFilters()) == []
    assert not runs.runs_of(other).exists()
    assert threads.count_threads(engine.operator, ThreadFilters()) == 1
    assert runs.get_head(engine.operator, task_id).status is RunStatus.SUCCESS
