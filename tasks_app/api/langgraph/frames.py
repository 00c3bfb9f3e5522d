"""From stored events to the frames of a run's stream: names, data and ids (runs contract, section 5).

An event may give several frames; the last of them carries its number as id, so that a reader who
comes back with that id has seen them all.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tasks_app.api.langgraph.render import (
    Json,
    checkpoint_json,
    child_json,
    data_json,
    error_of,
    interrupt_json,
    message_json,
    time_text,
    values_json,
)
from tasks_app.domain.conversation import CHANGES, MESSAGE, VALUES, apply
from tasks_app.domain.states import TERMINAL
from tasks_app.events.pieces import Piece
from tasks_app.queries.conversations import CHILD
from tasks_app.queries.events import EventRow
from tasks_app.queries.runs import RunHead
from tasks_app.queries.thread_states import CHECKPOINT, Interrupt, point_id

HEARTBEAT = ": heartbeat\n\n"
INTERRUPT = "__interrupt__"
# The mode in which clients ask for messages, and the name under which they come.
MESSAGES_MODE, MESSAGES_NAME = "messages-tuple", "messages"
_CUSTOM = ("progress", "log", "artifact", "budget", "model_error", "delivery")

Named = tuple[str, Any]


def frame(name: str, data: Any, seq: int | None = None) -> str:
    """Return one frame; without a number it does not move the reader's cursor."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    mark = "" if seq is None else f"id: {seq}\n"
    return f"event: {name}\ndata: {text}\n{mark}\n"


class Frames:
    """Renders the events of one run in the modes of one reader.

    `values` are those at the reader's cursor; they grow with the events that are rendered. Names
    with a `suffix` are not the run's own, and their frames carry no ids.
    """

    def __init__(
        self, run: RunHead, modes: Collection[str], values: dict[str, Any], suffix: str = ""
    ) -> None:
        self._run = run
        self._modes = frozenset(modes)
        self._values = values
        self._suffix = suffix
        # The newest worker that was heard saying something.
        self._fence = 0

    def opening(self) -> str:
        """Return the first frame of every connection."""
        run = self._run
        data = {"run_id": str(run.task_id), "thread_id": run.thread_key, "attempt": run.attempt}
        return frame("metadata", data)

    def gap(self, requested: int, earliest: int, latest: int, mark: int | None) -> str:
        """Return the frame that tells a reader to begin anew with what follows."""
        data = {
            "code": "stream_replay_gap",
            "run_id": str(self._run.task_id),
            "requested_event_id": requested,
            "earliest_available_event_id": earliest,
            "latest_available_event_id": latest,
            "recovery": "reload_durable_state",
        }
        return frame("gap", data, mark)

    def snapshot(self, values: Mapping[str, Any], seq: int | None) -> str:
        """Return the values as they are after an event."""
        return frame("values", values_json(values), seq)

    def of(self, event: EventRow, interrupts: Sequence[Interrupt]) -> str:
        """Return the frames of an event, empty when no mode asks for it.

        Args:
            interrupts: what the event asks a person, if it does.
        """
        if event.type in CHANGES:
            self._values = apply(self._values, [(event.type, event.data)])
        found = [named for named in self._all(event, interrupts) if named[0] in self._modes]
        texts = [
            frame(
                (MESSAGES_NAME if mode == MESSAGES_MODE else mode) + self._suffix,
                data,
                event.seq if number == len(found) and not self._suffix else None,
            )
            for number, (mode, data) in enumerate(found, start=1)
        ]
        return "".join(texts)

    def piece(self, piece: Piece) -> str:
        """Return the frame of a piece of a message that is not whole yet; it carries no id.

        A piece that comes behind its message, or from a worker that lost the run, is left out.
        """
        known = any(message.get("id") == piece.message_id for message in self._values["messages"])
        if known or piece.fence < self._fence:
            return ""
        self._fence = piece.fence
        chunk = {"id": piece.message_id, "type": "AIMessageChunk", "content": piece.text}
        return frame(MESSAGES_NAME, [chunk, self._about(piece.step or self._run.workflow)])

    def begin_with(self, values: Mapping[str, Any]) -> None:
        """Take these values for the present ones."""
        self._values = dict(values)

    def closing(self, run: RunHead, values: Mapping[str, Any] | None,
                interrupts: Sequence[Interrupt]) -> str:  # fmt: skip
        """Return what ends a stream: what the run waits for or why it failed, then `end`."""
        texts = []
        if run.task_status not in TERMINAL and values is not None:
            asked = {INTERRUPT: [interrupt_json(one) for one in interrupts]}
            if "values" in self._modes:
                texts.append(frame("values", {**values_json(values), **asked}))
            if "updates" in self._modes:
                texts.append(frame("updates", asked))
        error = error_of(run)
        if error is not None:
            texts.append(frame("error", {**error, "name": error["error"]}))
        data = {
            "run_id": str(run.task_id),
            "status": run.status,
            "stop_reason": run.stop_reason or None,
        }
        return "".join([*texts, frame("end", data, run.seq)])

    def _all(self, event: EventRow, interrupts: Sequence[Interrupt]) -> list[Named]:
        return [*self._told(event, interrupts), ("debug", self._debug(event))]

    def _told(self, event: EventRow, interrupts: Sequence[Interrupt]) -> list[Named]:
        kind, data = event.type, event.data
        if kind == MESSAGE:
            return self._message(event)
        if kind == VALUES:
            return [("updates", {self._step(data): data["values"]}), ("values", self._shown())]
        if kind == CHECKPOINT:
            return [("values", self._shown()), ("checkpoints", self._checkpoint(event))]
        if kind == CHILD:
            return [("tasks", self._task(data)), ("custom", child_json(data))]
        if kind in _CUSTOM:
            return [("custom", {"type": kind, **data_json(data)})]
        if kind == "input_required":
            asked = {INTERRUPT: [interrupt_json(one) for one in interrupts]}
            return (
                [("updates", asked), ("values", {**self._shown(), **asked})] if interrupts else []
            )
        if kind == "status" and (event.seq == 1 or data.get("target") in TERMINAL):
            return [("values", self._shown())]
        return []

    @staticmethod
    def _task(data: Mapping[str, Any]) -> Json:
        """Return a started task in the form that clients know of tasks of a graph."""
        about = {"id": data["executionId"], "name": data["workflow"], "interrupts": []}
        if data["status"] in {"started", "running"}:
            return {**about, "input": None, "triggers": [data["step"]]}
        return {**about, "error": data.get("message"), "result": child_json(data)}

    def _message(self, event: EventRow) -> list[Named]:
        message, values = message_json(event.data), ("values", self._shown())
        if message.get("type") in {"human", "system"} and "step" not in event.data:
            return [values]
        step = self._step(event.data)
        update = ("updates", {step: {"messages": [message]}})
        return [(MESSAGES_MODE, [message, self._about(step)]), update, values]

    def _about(self, step: str) -> Json:
        run = self._run
        return {
            "run_id": str(run.task_id),
            "thread_id": run.thread_key,
            "langgraph_node": step,
            "attempt": run.attempt,
        }

    def _step(self, data: Mapping[str, Any]) -> str:
        return str(data.get("step") or self._run.workflow)

    def _shown(self) -> Json:
        return values_json(self._values)

    def _checkpoint(self, event: EventRow) -> Json:
        run = self._run
        name = checkpoint_json(run.thread_key, point_id(run.task_id, event.seq))
        return {
            "config": {"configurable": name},
            "values": self._shown(),
            "metadata": {"source": "loop", "step": event.seq, "run_id": str(run.task_id)},
            "next": [run.workflow],
            "created_at": time_text(event.at),
        }

    def _debug(self, event: EventRow) -> Json:
        return {
            "type": event.type,
            "step": event.seq,
            "timestamp": time_text(event.at),
            "payload": dict(event.data),
        }
