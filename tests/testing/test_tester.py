"""Rule E93: an author finds his own missing idempotency before the night does."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import override

from tasks_app.testing import DurableTester, Outcome, WeakPointError
from tasks_app.workflows import Retry, StepContext, Workflow, effect, registry, step, workflow

SENT: Counter[str] = Counter()
MAILS: list[str] = []


class Letters(BaseModel):
    """Whom to write to."""

    names: list[str]
    careless: bool = False
    ask: bool = False


class WriteLetters(Workflow[Letters, str]):
    """Makes a letter for each name, waits a day, sends it."""

    @override
    def plan(self, goal: Letters, p: Any) -> Any:
        letters = [p.step(self.write, name) for name in goal.names]
        p.sleep(timedelta(days=1))
        if goal.ask:
            p.approval("send", deadline=timedelta(hours=1))
        for letter in letters:
            p.effect(self.send, letter, goal.careless)
        return letters[-1]

    @step(pure=True)
    def write(self, ctx: StepContext, name: str) -> str:
        return f"Dear {name}"

    @effect(kind="keyed", retry=Retry(max=2, first_seconds=0.01, max_seconds=0.02))
    def send(self, ctx: StepContext, letter: str, careless: bool) -> str:
        # The careless author sends without the key, so the other side cannot know it again.
        key = f"{len(MAILS)}" if careless else ctx.effect_key
        MAILS.append(key)
        SENT[key] = 1
        return key


@pytest.fixture
def letters() -> Iterator[type[WriteLetters]]:
    workflow(name="letters", version=1)(WriteLetters)
    yield WriteLetters
    registry.forget("letters")


def empty_the_post() -> None:
    SENT.clear()
    MAILS.clear()


def each_letter_once(outcome: Outcome) -> None:
    assert outcome.status == "completed"
    assert len(SENT) == len(outcome.acts), f"{len(SENT)} letters for {len(outcome.acts)} names"


def test_run_moves_time_and_approves(durable: DurableTester, letters: Any) -> None:
    """A day's sleep and an approval cost nothing; the outcome tells result and acts."""
    empty_the_post()
    outcome = durable.run(letters, Letters(names=["Ada"], ask=True))
    assert (outcome.status, outcome.result) == ("completed", "Dear Ada")
    assert [(act.name, act.state) for act in outcome.acts] == [("send", "succeeded")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "everywhere",
    ["crash_everywhere", "freeze_everywhere", "deliver_twice_everywhere", "steer_everywhere"],
)
def test_careful_workflow_holds_everywhere(
    durable: DurableTester, letters: Any, everywhere: str
) -> None:
    """Whatever happens to the worker at any point, each letter is sent once."""
    points = getattr(durable, everywhere)(
        letters, Letters(names=["Ada"]), arrange=empty_the_post, check=each_letter_once
    )
    names = {point.name for point in points}
    assert {"step.before", "effect.after_begin", "effect.after_call", "effect.after"} <= names


@pytest.mark.slow
def test_careless_workflow_is_found(durable: DurableTester, letters: Any) -> None:
    """Who does not pass the key on is told at which points a letter goes out twice."""
    with pytest.raises(WeakPointError) as found:
        durable.crash_everywhere(
            letters,
            Letters(names=["Ada"], careless=True),
            arrange=empty_the_post,
            check=each_letter_once,
        )
    assert "effect.after_call #1: 2 letters for 1 names" in str(found.value)
    assert "step.before #1" not in str(found.value)
