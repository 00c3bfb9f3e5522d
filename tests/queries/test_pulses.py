"""Rules: what is new in many runs is one statement, and as the journal tells it."""

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.admission import runs as writing
from tasks_app.domain.run_bodies import parse
from tasks_app.domain.states import TaskStatus
from tasks_app.engine import lease
from tasks_app.models import Run
from tasks_app.queries import pulses
from tasks_app.queries.conversations import events_between
from tasks_app.queries.pulses import Pulse, Question, pulses_of
from tasks_app.queries.runs import RunHead, get_head
from tests.factories import make_tenant
from tests.support.engine import Engine

pytestmark = pytest.mark.django_db


@pytest.fixture
def engine(db: None) -> Iterator[Engine]:
    yield Engine()
    lease.stop_keeper()


def started(engine: Engine) -> RunHead:
    script = [{"op": "say", "text": text} for text in "ab"]
    body = parse({"assistant_id": "scripted", "input": {"script": script}})
    made = writing.create_run(engine.submitter, thread_key=None, body=body)
    return get_head(engine.submitter, made.task_id)


def asked(run: RunHead, after: int = 0) -> Question:
    return Question(run.tenant_id, run.task_id, after)


def told(engine: Engine, run: RunHead, after: int = 0) -> Pulse:
    now = get_head(engine.submitter, run.task_id)
    events = events_between(engine.submitter, run.task_id, after=after, up_to=now.seq)
    return Pulse(now.task_status, now.seq, now.base_state_id, events)


def test_each_answer_is_what_the_run_tells_by_itself(engine: Engine) -> None:
    """In the order of the questions, from where each knows; all with one statement."""
    waiting, ended = started(engine), started(engine)
    engine.drive(ended.task_id)
    questions = [asked(ended, 2), asked(waiting), asked(ended), asked(waiting, waiting.seq)]
    with CaptureQueriesContext(connection) as captured:
        found = pulses_of(questions)
    assert len(captured) == 1
    assert found == [
        told(engine, ended, 2),
        told(engine, waiting),
        told(engine, ended),
        told(engine, waiting, waiting.seq),
    ]
    assert found[0].status is TaskStatus.COMPLETED
    assert found[3].events == []


def test_many_events_come_in_parts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer tells where the run stands, and its first events."""
    run = started(engine)
    engine.drive(run.task_id)
    whole = told(engine, run)
    monkeypatch.setattr(pulses, "MAX_EVENTS", 3)
    (found,) = pulses_of([asked(run)])
    assert found == Pulse(whole.status, whole.seq, whole.base_state_id, whole.events[:3])


def test_what_is_out_of_sight_has_no_answer(engine: Engine) -> None:
    """A hidden run, and one that another tenant asks for."""
    hidden, foreign = started(engine), started(engine)
    Run.objects.for_tenant(hidden.tenant_id).filter(pk=hidden.task_id).update(
        hidden_at=timezone.now()
    )
    elsewhere = Question(make_tenant().id, foreign.task_id, 0)
    assert pulses_of([asked(hidden), elsewhere]) == [None, None]
