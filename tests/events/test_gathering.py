"""Rules: streams that wake together are one visit to the database; nobody waits for another."""

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError

from tasks_app.api.langgraph import gathering
from tasks_app.api.langgraph.gathering import Gatherer, gatherer
from tasks_app.domain.states import TaskStatus
from tasks_app.queries.pulses import Pulse, Question


class Journal:
    """Answers visits, and remembers how many asked each time."""

    def __init__(self) -> None:
        self.visits: list[int] = []
        self.fails = False

    def pulses_of(self, asked: Sequence[Question]) -> list[Pulse | None]:
        self.visits.append(len(asked))
        if self.fails:
            raise DatabaseError
        return [Pulse(TaskStatus.WORKING, one.after, None, []) for one in asked]


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    found = Journal()
    monkeypatch.setattr(gathering, "pulses_of", found.pulses_of)
    # Long enough that all who ask in one test ask within it.
    monkeypatch.setattr(gathering, "PAUSE_SECONDS", 0.3)
    return found


TENANT = UUID(int=1)


def question(after: int) -> Question:
    return Question(TENANT, uuid4(), after)


async def ask(at: Gatherer, numbers: range) -> list[int]:
    found = await asyncio.gather(*(at.ask(question(number)) for number in numbers))
    return [pulse.seq for pulse in found if pulse is not None]


def test_who_asks_within_the_pause_goes_together(journal: Journal) -> None:
    """The first is answered at once, the others together, each with its own answer."""

    async def scenario() -> None:
        at = gatherer()
        assert at is gatherer()
        assert await ask(at, range(1)) == [0]
        assert await ask(at, range(1, 50)) == list(range(1, 50))

    asyncio.run(scenario())
    assert journal.visits == [1, 49]


def test_failed_visit_is_told_to_each_who_asked(journal: Journal) -> None:
    """The next visit is made as if nothing had happened."""

    async def scenario() -> None:
        at = gatherer()
        journal.fails = True
        asked = [at.ask(question(number)) for number in range(3)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in found] == [DatabaseError] * 3
        journal.fails = False
        assert await ask(at, range(2)) == [0, 1]

    asyncio.run(scenario())


def test_who_leaves_disturbs_nobody(journal: Journal) -> None:
    """The others get their answers."""

    async def scenario() -> None:
        at = gatherer()
        gone = asyncio.ensure_future(at.ask(question(7)))
        stays = asyncio.ensure_future(at.ask(question(8)))
        await asyncio.sleep(0)
        gone.cancel()
        found = await stays
        assert found is not None
        assert found.seq == 8

    asyncio.run(scenario())
