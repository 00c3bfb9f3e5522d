"""Pieces of messages: shown while a step makes them, replaced by the whole, never a secret (R44)."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from runtime_project.asgi import OneThreadHandler
from tasks_app.api.langgraph.frames import Frames
from tasks_app.engine import lease, saying, secret_values
from tasks_app.engine.saying import Saying
from tasks_app.events import publisher
from tasks_app.events.listening import SupervisedListenerManager
from tasks_app.events.pieces import Piece
from tests.api.door import Door, say
from tests.races.actors import Actor
from tests.support.streams import WebServer, listen
from tests.support.syncdir import SyncDir

TEXT = "one two three"


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what steps of other tests were given in this process."""
    monkeypatch.setattr(secret_values, "_given", set())


@pytest.mark.django_db(transaction=True)
def test_pieces_come_before_the_message_and_move_no_cursor(
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    manager: SupervisedListenerManager,
) -> None:
    """They have its id and no number; the whole message has one, and a later reader sees it alone."""
    settings.STATIC_ROOT = tmp_path
    sync = SyncDir(tmp_path / "sync")
    monkeypatch.setenv("RUNTIME_SYNCPOINT_DIR", str(sync.folder))
    sync.hold("step.before_commit")
    with WebServer(OneThreadHandler()) as web:
        door = Door(web)
        run = door.start(say(TEXT, impure=True))
        address = f"{door.url}{door.place(run)}/stream?stream_mode=messages-tuple"
        with listen(address, headers=door.headers) as events:
            assert events.next().type == "metadata"
            worker = Actor(lambda: door.engine.run(run["run_id"]))
            pieces: list[Any] = []
            while "".join(piece.data[0]["content"] for piece in pieces) != TEXT:
                pieces.append(events.next("messages"))
            sync.release("step.before_commit")
            whole = events.next("messages")
            assert events.until("end")[-1].data["status"] == "success"
        assert worker.result() == "completed"
        replayed = door.frames(run, "?stream_mode=messages-tuple", last="0")
        door.client.close()
    lease.stop_keeper()
    assert {piece.data[0]["type"] for piece in pieces} == {"AIMessageChunk"}
    assert {piece.data[0]["id"] for piece in pieces} == {whole.data[0]["id"]}
    assert {piece.data[1]["attempt"] for piece in pieces} == {1}
    assert {piece.id for piece in pieces} == {""}
    assert (whole.data[0]["type"], whole.data[0]["content"]) == ("ai", TEXT)
    assert int(whole.id) > 0
    assert [part.data for part in replayed if part.type == "messages"] == [whole.data]


class _Run:
    task_id, thread_key, workflow, attempt = uuid4(), "talk", "scripted", 2


def frames(*messages: str) -> Frames:
    values = {"messages": [{"id": name} for name in messages]}
    return Frames(_Run(), ["messages-tuple"], values)  # type: ignore[arg-type]


def test_who_lost_the_run_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """R44: behind a newer worker's pieces, and behind the message itself, nothing old is shown."""
    found = frames("old")
    assert found.piece(Piece("old", "run", "x", 3)) == ""
    assert "second" in found.piece(Piece("new", "run", "second", 2))
    assert found.piece(Piece("new", "run", "first", 1)) == ""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is published instead of being sent; no pause holds anything together."""
    found: list[str] = []
    monkeypatch.setattr(publisher, "publish_piece", lambda _, piece: found.append(piece.text))
    monkeypatch.setattr(saying, "PAUSE_SECONDS", 0.0)
    return found


def test_no_part_of_a_secret_is_shown(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is cut into pieces: what could be its beginning waits for the rest."""
    monkeypatch.setattr(secret_values, "_given", {"hunter22"})
    said = Saying(uuid4(), 1, "run")
    for piece in ("the key ", "is hunt", "er", "22, as", " you know"):
        said.add("m", piece)
        assert "hunt" not in "".join(shown)
    said.end("m")
    assert "".join(shown) == "the key is [secret], as you know"


def test_pieces_that_follow_fast_go_together(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is shown with the message."""
    monkeypatch.setattr(saying, "PAUSE_SECONDS", 60.0)
    said = Saying(uuid4(), 1, "run")
    for piece in "abcd":
        said.add("m", piece)
    assert shown == ["a"]
    said.end("m")
    assert shown == ["a", "bcd"]
