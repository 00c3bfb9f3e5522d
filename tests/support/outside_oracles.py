"""Oracles that compare a task with what somebody else saw: the outside world, clients, a clock."""

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from ledger_app.services import audit
from tasks_app.domain.states import TERMINAL
from tasks_app.models import Task
from tests.support.evidence import Evidence, Progress, of
from tests.support.oracles import OracleViolation, demand
from tests.support.outside import Count

HELD_BY_A_PERSON = TERMINAL | {"dead_lettered", "paused", "input_required"}


# --- O2 ----------------------------------------------------------------------------------------


def check_outside(
    task: Task, counts: Mapping[str, Count], *, expected: int, faults: int = 1
) -> None:
    """O2: every act of the task happened once, and was asked for once more a fault at most."""
    evidence = of(task)
    check_acts(evidence, counts, faults=faults)
    number = len(evidence.effects)
    demand(number == expected, "O2", f"{number} acts in the ledger, not {expected}", task)
    for act in evidence.effects:
        demand(act.state == "succeeded", "O2", f"{act.key} is {act.state}", task)


def check_acts(
    evidence: Evidence, counts: Mapping[str, Count], *, faults: int | None = None
) -> None:
    """O2: what the other side counted of a task's keys is what the ledger says.

    Args:
        counts: of this task's keys only.
        faults: how often somebody was killed or shut out; None: any number.
    """
    task = evidence.task
    acts = {act.key: act for act in evidence.effects}
    unknown = sorted(set(counts) - set(acts))
    demand(not unknown, "O2", f"the ledger does not know {unknown}", task)
    for key, act in acts.items():
        seen = counts.get(key, Count(requests=0, acts=0))
        demand(seen.acts <= 1, "O2", f"{key} was acted on {seen.acts} times", task)
        if act.kind == "opaque":
            demand(seen.requests <= 1, "O2", f"{key} was called {seen.requests} times", task)
        if act.state in {"succeeded", "compensated"}:
            demand(seen.acts == 1, "O2", f"{key} {act.state} without having happened", task)
        if act.state in {"failed", "planned"}:
            demand(seen.acts == 0, "O2", f"{key} {act.state}, but it happened", task)
        if faults is not None:
            limit = 1 + faults
            asked = f"{key} was asked for {seen.requests} times, begun {act.attempts} times"
            demand(seen.requests <= limit and act.attempts <= limit, "O2", asked, task)


def check_runs(before: Progress, after: Progress) -> None:
    """O6: what was committed before a fault never runs again; what was not, at most once more."""
    for line, runs in after.runs.items():
        known = before.runs.get(line, 0)
        if line in before.committed:
            demand(runs == known, "O6", f"{line} was committed and ran again")
        else:
            demand(runs <= known + 1, "O6", f"{line} ran {runs} times, {known} before the fault")


# --- O5 ----------------------------------------------------------------------------------------

_EDITS = (
    "UPDATE ledger_app_auditentry SET envelope = envelope || ' '",
    "UPDATE ledger_app_auditentry SET at = at + interval '1 second'",
    "UPDATE ledger_app_auditentry SET prev_hash = hash",
    "DELETE FROM ledger_app_auditentry",
)


class _UndoneError(Exception):
    """Ends the transaction in which the audit was tampered with."""


def check_edit_is_found(task_id: UUID, chance: random.Random) -> None:
    """O5: somebody with every right on the database edits an entry, and verification sees it."""
    stream = f"task:{task_id}"
    verdict = audit.verify(stream)
    edit, seq = chance.choice(_EDITS), chance.randint(1, verdict.entries)
    with suppress(_UndoneError), transaction.atomic():
        with connection.cursor() as cursor:
            # Triggers of the table refuse the edit even to its owner.
            cursor.execute("ALTER TABLE ledger_app_auditentry DISABLE TRIGGER USER")
            cursor.execute(f"{edit} WHERE stream = %s AND seq = %s", [stream, seq])
        edited = audit.verify(stream)
        if edited.fault is None:
            raise OracleViolation("O5", f"{edit} of entry {seq} was not noticed", task_id)
        raise _UndoneError


# --- O7: what callers were told ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """One command as its sender saw it.

    Attributes:
        version_before: the task's version when it was sent.
        version_after: the task's version when the answer came.
        answer: "accepted", or the code of the refusal.
        replayed: the same command id had been sent before.
    """

    task_id: UUID
    command_id: UUID
    expected_version: int
    version_before: int
    version_after: int
    answer: str
    replayed: bool = False


def check_answers(evidence: Evidence, calls: Iterable[Call]) -> None:
    """O7: some order of the calls, each between its sending and its answer, explains them all."""
    task = evidence.task
    stored = {row.command_id: row for row in evidence.commands}
    for call in calls:
        command, what = stored.get(call.command_id), f"{call}"
        within = call.version_before <= call.expected_version <= call.version_after
        if call.answer == "accepted":
            demand(command is not None, "O7", f"accepted, but not stored: {what}", task)
            demand(call.replayed or within, "O7", f"accepted on another version: {what}", task)
        elif call.answer == "version_conflict":
            same = call.version_before == call.expected_version == call.version_after
            demand(not same, "O7", f"refused on its own version: {what}", task)
    answered = {call.command_id for call in calls if call.answer == "accepted"}
    unknown = set(stored) - answered
    demand(not unknown, "O7", f"commands nobody was told of: {unknown}", task)


# --- O8 ----------------------------------------------------------------------------------------


def check_usage(
    evidence: Evidence,
    truth: Mapping[str, tuple[int, int, int]],
    *,
    certain: Collection[str] | None = None,
) -> None:
    """O8: each source that was really used is counted once.

    Args:
        truth: tokens in, tokens out and micros by source, as the provider counted them.
        certain: the sources that must be counted, those of finished steps; default all. Others
            may have been used by somebody who died before the step was taken up again.
    """
    stored = {
        row.source_id: (row.input_tokens, row.output_tokens, row.cost_micros)
        for row in evidence.usage
    }
    wrong = {source: used for source, used in stored.items() if truth.get(source) != used}
    demand(not wrong, "O8", f"counted {wrong}, really {dict(truth)}", evidence.task)
    missing = set(truth if certain is None else certain) - set(stored)
    demand(not missing, "O8", f"never counted: {sorted(missing)}", evidence.task)


# --- O11 ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """One pushed event, and the snapshot that a client reads when it comes."""

    seq: int
    type: str
    version: int
    snapshot_seq: int
    snapshot: Mapping[str, Any]


def fold(frames: Iterable[Frame]) -> tuple[int, Mapping[str, Any]]:
    """Return what a page shows after these frames: (newest seq it has seen, picture).

    The rule of the dashboard's `live.js`: the picture is never built from events; any event that
    is newer than the picture asks for the snapshot.
    """
    heard = seen = 0
    picture: Mapping[str, Any] = {}
    for frame in frames:
        if frame.seq <= heard:
            continue
        heard = frame.seq
        if heard > seen:
            seen, picture = frame.snapshot_seq, frame.snapshot
    return seen, picture


def check_frames(
    evidence: Evidence,
    frames: Sequence[Frame],
    final: Mapping[str, Any],
    chance: random.Random,
    *,
    lossless: bool = True,
    subsets: int = 5,
) -> None:
    """O11: frames tell only committed facts, and any of them that survive lead to the end.

    Args:
        final: the last snapshot.
        lossless: nobody died between a commit and its push, so that every event was pushed.
    """
    task = evidence.task
    types = {event.seq: event.type for event in evidence.events}
    told = {frame.seq for frame in frames}
    missing = sorted(set(types) - told) if lossless else []
    demand(not missing, "O11", f"never pushed: {missing}", task)
    for frame in frames:
        stored = types.get(frame.seq)
        demand(stored == frame.type, "O11", f"{frame.seq} is {stored}, not {frame.type}", task)
        early = frame.snapshot_seq < frame.seq
        demand(not early, "O11", f"{frame.seq} was pushed before it was committed", task)
    for _ in range(subsets if task.event_seq in told else 0):
        kept = [f for f in frames if chance.random() < 0.5 or f.seq == task.event_seq]
        chance.shuffle(kept)
        seen, picture = fold(kept)
        same = (seen, dict(picture)) == (task.event_seq, dict(final))
        demand(same, "O11", f"{seen} {picture} is not {task.event_seq} {final}", task)


# --- O12 ---------------------------------------------------------------------------------------


def check_settled(
    tasks: Callable[[], Iterable[Task]], *, seconds: float, limit_seconds: float
) -> None:
    """O12: so long after the faults stopped, every task has come to rest.

    Args:
        seconds: how long it took.
        limit_seconds: lease and grace and half a minute.
    """
    open_tasks = [str(t.id) for t in tasks() if t.status not in HELD_BY_A_PERSON]
    demand(not open_tasks, "O12", f"after {seconds:.1f} s still open: {open_tasks}")
    demand(seconds <= limit_seconds, "O12", f"{seconds:.1f} s, {limit_seconds:.1f} s are allowed")
