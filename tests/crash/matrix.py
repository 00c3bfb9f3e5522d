"""Does to each case of `cases` what is to be done, and judges what it left behind.

One case is one task that is held at one pass, hurt there, and must come out right. Many cases are
under way at once on one fleet: a case is a generator that yields what it waits for.
"""

import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any
from uuid import UUID

from celery import current_app

from runtime_project.local.processes import wait_until
from tasks_app.engine.continuation import JOB_NAME
from tasks_app.models import Slice, Task
from tests.crash.bed import REST, Bed
from tests.crash.cases import CALLED, UNCLAIMED, Case
from tests.crash.watching import Published, SliceEnds
from tests.support import evidence, oracles, outside_oracles
from tests.support.evidence import Progress
from tests.support.outside import Count
from tests.support.syncdir import Hit

PATIENCE_SECONDS = 60.0
RUN_SECONDS = 850.0
ASKING_SECONDS = 0.05

Waiting = tuple[Callable[[], bool], str]
Flow = Generator[Waiting, None, None]


class Bench:
    """What all cases share: the fleet's bed, and eyes on logs, messages and rows."""

    def __init__(self, bed: Bed, published: Published) -> None:
        self.bed = bed
        self.ends = SliceEnds(bed.fleet)
        self.published = published
        self.rows: dict[UUID, tuple[str, int]] = {}

    def submit(self, kind: str, name: str, held: tuple[str, int] | None = None) -> UUID:
        """Admit the task of a case, held at one pass."""
        point, passes = ((), ()) if held is None else (held[0], (held[1],))
        return self.bed.submit(*self.script(kind, name), held=point, held_at=passes)

    def script(self, kind: str, name: str) -> list[dict[str, Any]]:
        """Return two acts between committed and held-back steps: 25 passes."""
        runs = {"append": str(self.bed.folder / f"{name}.runs")}
        act = {"kind": kind, "unattended": kind == "opaque"}
        return [
            {**self.bed.say(impure=True), **runs},
            {**self.bed.effect("first"), **act},
            {**self.bed.say(), **runs},
            {**self.bed.effect("second"), **act},
            {**self.bed.say(), **runs},
        ]

    def progress(self, task_id: UUID, name: str) -> Progress:
        """Return what ran of a case's task and what is committed."""
        return Progress(self.bed.task(task_id), self.bed.folder / f"{name}.runs")

    def look(self, task_ids: Iterable[UUID]) -> None:
        """Read once, for all cases under way, where their tasks are."""
        found = Task.objects.for_tenant(self.bed.tenant.id).filter(pk__in=list(task_ids))
        self.rows = {pk: (status, fence) for pk, status, fence in found.values_list(
            "id", "status", "fence"
        )}  # fmt: skip
        self.ends.read()

    def rests(self, task_id: UUID) -> bool:
        """Tell whether the task has ended or waits for a person."""
        return self.rows.get(task_id, ("", 0))[0] in REST

    def is_taken_over(self, task_id: UUID, hit: Hit) -> bool:
        """Tell whether a newer fence than the held process's owns the task."""
        return self.rows.get(task_id, ("", 0))[1] > hit.fence


class Trial:
    """One case under way."""

    def __init__(self, bench: Bench, case: Case) -> None:
        self.bench = bench
        self.bed = bench.bed
        self.case = case
        self.task_id = bench.submit(case.kind, case.name, case.stop)
        if case.fault == "doubled":
            self._send_twice()
        flow: Flow = {"killed": self._killed, "zombie": self._zombie, "doubled": self._doubled}[
            case.fault
        ]()
        self._flow = flow
        self._waits: Waiting = (lambda: True, "")
        self.fault = ""
        self._before: Progress | None = None
        self._while_frozen: tuple[dict[str, Any], int, int] = ({}, 0, 0)
        self._zombies_end = ""
        self._since = time.monotonic()

    def advance(self) -> bool:
        """Go on if what it waits for has come; return whether the case is over.

        Raises: AssertionError with what was wrong.
        """
        condition, what = self._waits
        while condition():
            try:
                self._waits = condition, what = next(self._flow)
            except StopIteration:
                return True
            self._since = time.monotonic()
        if time.monotonic() - self._since > PATIENCE_SECONDS:
            task = self.bed.task(self.task_id)
            raise AssertionError(f"{what} never came: {task.status}, {task.error}")
        return False

    def end(self) -> None:
        """Let go of whatever is still held or frozen."""
        self._flow.close()
        self.bed.sync.release((self.case.point, "claim.before"), self.task_id)

    # --- the three faults ----------------------------------------------------------------------

    def _killed(self) -> Flow:
        hit = yield from self._hit()
        self.bed.kill(hit.pid)
        self._before = self._progress()
        self._release()
        yield partial(self.bench.rests, self.task_id), "rest"

    def _zombie(self) -> Flow:
        hit = yield from self._hit()
        os.kill(hit.pid, signal.SIGSTOP)
        try:
            frozen_at = time.monotonic()
            self._before = self._progress()
            known_seq = self.bed.task(self.task_id).event_seq
            if self.case.point in UNCLAIMED:
                seconds = float(self.bed.fleet.env["RUNTIME_LEASE_SECONDS"])
                yield lambda: time.monotonic() - frozen_at > seconds, "the end of a lease"
            else:
                yield partial(self.bench.is_taken_over, self.task_id, hit), "the take-over"
            yield partial(self.bench.rests, self.task_id), "rest"
            if self.case.point != "finish.after_terminal":
                # There the news of its end may be frozen with it.
                last = self.bed.task(self.task_id).event_seq
                yield lambda: last in self.bench.published.seqs(self.task_id), "the news"
            told = self.bench.published.count(self.task_id)
            self._while_frozen = (self._all_rows(), known_seq, told)
            self.bench.ends.forget_jobs(hit.pid)
            self._release()
        finally:
            os.kill(hit.pid, signal.SIGCONT)
        yield partial(self.bench.ends.is_over, self.task_id, hit), "the zombie's end"
        self._zombies_end = self.bench.ends.outcome(self.task_id, hit)

    def _doubled(self) -> Flow:
        """Another delivery asks for the task while a process is held, perhaps inside a commit.

        Both wait at the claim's door first: nobody may hold a row's lock until a worker is free.
        """
        name, number = self.case.stop
        yield lambda: self._passes("claim.before") >= 2, "both deliveries"
        if name == "claim.before":
            yield partial(self.bench.rests, self.task_id), "rest"
        else:
            self.bed.sync.hold("claim.before", self.task_id, at=(2,))
            yield lambda: self._passes(name) >= number, f"pass {number} of {name}"
            self.bed.sync.release("claim.before", self.task_id)
            asked_at = time.monotonic()
            yield lambda: time.monotonic() - asked_at > ASKING_SECONDS, "a moment"
        self._release()
        yield partial(self.bench.rests, self.task_id), "rest"

    # --- what must be true afterwards ----------------------------------------------------------

    def judge(self) -> None:
        """Check what the case left behind, after all cases are over. Raises: AssertionError."""
        assert not self.fault, self.fault
        task = self.bed.task(self.task_id)
        oracles.check_task(task, at_rest=True)
        self._judge_fault(task)
        if self._before is not None:
            outside_oracles.check_runs(self._before, self._progress())
        if self.case.ends_in_doubt:
            self._judge_doubt(task)
            return
        assert task.status == "completed", task.error
        outside_oracles.check_outside(task, self._counts(), expected=2)
        if self.case.kind != "keyed":
            # The outside acts on every request of these kinds, so this is what happening once means.
            assert {count.requests for count in self._counts().values()} == {1}

    def _judge_fault(self, task: Task) -> None:
        match self.case.fault:
            case "doubled":
                assert {count.requests for count in self._counts().values()} == {1}
                assert task.recoveries_total == 0, f"{task.recoveries_total} recoveries"
                slices = Slice.objects.for_tenant(task.tenant_id).filter(task_id=task.id)
                ends = list(slices.values_list("outcome", flat=True))
                assert ends == ["completed"], ends
            case "zombie":
                rows, known_seq, told = self._while_frozen
                now = self._all_rows()
                changed = {name: (rows[name], now[name]) for name in now if now[name] != rows[name]}
                assert not changed, f"the zombie wrote, called or ran something: {changed}"
                late = self.bench.published.seqs(self.task_id)[told:]
                # What was committed before the freeze may still be told, nothing done afterwards.
                assert all(seq <= known_seq for seq in late), f"the zombie published {late}"
                if self.case.point not in UNCLAIMED:
                    assert self._zombies_end in {"lost", "crashed"}, self._zombies_end
            case _:
                recovered = self.case.point not in UNCLAIMED
                assert task.recoveries_total >= recovered, f"{task.recoveries_total} recoveries"

    def _judge_doubt(self, task: Task) -> None:
        assert task.status == "dead_lettered", task.status
        assert task.error["code"] == "effect_in_doubt", task.error
        counts = self._counts()
        assert all(count.requests == 1 for count in counts.values()), counts
        found = evidence.of(task)
        outside_oracles.check_acts(found, counts)
        doubted = [act.key for act in found.effects if act.state == "in_doubt"]
        assert len(doubted) == 1, [act.state for act in found.effects]
        assert (doubted[0] in counts) == (self.case.stop in CALLED), "it was called afterwards"

    def _all_rows(self) -> dict[str, Any]:
        """Return everything that a zombie could change: rows, calls, executed bodies."""
        return {
            **evidence.rows_of(self.task_id),
            "calls": self._counts(),
            "runs": self._progress().runs,
        }

    # --- what they are made of -----------------------------------------------------------------

    def _hit(self) -> Generator[Waiting, None, Hit]:
        name, number = self.case.stop
        yield lambda: self._passes(name) >= number, f"pass {number} of {name}"
        return self.bed.sync.hits(name, self.task_id)[number - 1]

    def _send_twice(self) -> None:
        """Both deliveries wait at the claim's door, whichever comes first."""
        passes = (1,) if self.case.point == "claim.before" else (1, 2)
        self.bed.sync.hold("claim.before", self.task_id, at=passes)
        current_app.send_task(JOB_NAME, args=[str(self.task_id), "again"], queue="slices")

    def _passes(self, name: str) -> int:
        return len(self.bed.sync.hits(name, self.task_id))

    def _release(self) -> None:
        self.bed.sync.release(self.case.point, self.task_id)

    def _progress(self) -> Progress:
        return self.bench.progress(self.task_id, self.case.name)

    def _counts(self) -> dict[str, Count]:
        return self.bed.outside.counts(str(self.task_id))


def run_all(bench: Bench, cases: Iterable[Case], *, processes: int) -> dict[Case, Trial]:
    """Do to each case what is to be done, as many at once as there are processes for them.

    Nothing is judged meanwhile: a held process must not wait for this one.
    """
    coming = deque(cases)
    begun: dict[Case, Trial] = {}
    under_way: list[Trial] = []

    def is_over() -> bool:
        busy = sum(trial.case.processes for trial in under_way)
        while coming and busy + coming[0].processes <= processes:
            case = coming.popleft()
            busy += case.processes
            begun[case] = Trial(bench, case)
            under_way.append(begun[case])
        bench.look(trial.task_id for trial in under_way)
        under_way[:] = [trial for trial in under_way if not _is_over(trial)]
        return not (coming or under_way)

    assert wait_until(is_over, seconds=RUN_SECONDS), f"never over: {under_way}"
    return begun


def _is_over(trial: Trial) -> bool:
    try:
        if not trial.advance():
            return False
    except Exception:  # noqa: BLE001 - one case's failure must not end the others
        trial.fault = f"{trial.task_id}\n{traceback.format_exc()}"
    trial.end()
    return True
