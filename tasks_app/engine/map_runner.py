"""Runs a map: thousands of items with a range cursor; a crash repeats only the open range."""

import time
from typing import Any

from tasks_app.domain.budgets import BudgetKind
from tasks_app.domain.errors import ConfigurationError
from tasks_app.engine import budgets, step_runner, values
from tasks_app.engine.held import storable
from tasks_app.engine.session import SliceSession
from tasks_app.engine.step_context import RunningStep, effect_key
from tasks_app.models import Step, StepRange
from tasks_app.workflows import ItemError
from tasks_app.workflows.definition import StepDefinition

_CODE_FAILED = "item_failed"


class TooManyFailedItemsError(Exception):
    """More items failed than the map may collect."""


def run_map(session: SliceSession, step: Step) -> bool:
    """Run items until the map is done or the slice should look up; return whether it is done."""
    run = _MapRun(session, step)
    try:
        return run.until_safe_point()
    except _ItemStopError as stop:
        run.flush()
        step_runner.fail_try(session, step, run.declared, stop.cause)
        return True


class _ItemStopError(Exception):
    """An item failed in a way that stops the map."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _MapRun:
    """One slice's part of a map."""

    def __init__(self, session: SliceSession, step: Step) -> None:
        self.session = session
        self.step = step
        bound = session.bound(step)
        self.declared: StepDefinition = bound.declared
        if not self.declared.pure and self.declared.kind != "step":
            raise ConfigurationError(f"{step.method} cannot be mapped")
        self.method = bound.call
        encoded = step.arguments["args"]
        self.items = values.Items(session.task.tenant_id, session.arguments.value(encoded[0]))
        self.extra = [session.arguments.value(item) for item in encoded[1:]]
        self.chunk = int(step.options["chunk"])
        self.collect = bool(step.options.get("collect"))
        self.max_failed = step.options.get("max_failed")
        self._earlier = _EarlierResults(session, step)
        # The open range: its first item, and what its reservation is called.
        self._first = step.next_item
        self._source = ""
        self._begin()

    def _begin(self) -> None:
        session, step = self.session, self.step
        session.phase = self.declared.title
        session.step_began_at = time.monotonic()
        session.next_key = step.key
        session.next_position = step.position
        if step.status == "planned":
            session.grow_total(max(0, self.items.count - 1))
            session.hold_result(step, "running", finished=False)

    def until_safe_point(self) -> bool:
        """Run ranges of items; a range ends at the chunk's size or when a commit is due."""
        while self.step.next_item < self.items.count:
            self._run_range()
            session = self.session
            if budgets.is_concerned(session, self.declared.estimate):
                self.flush()
            elif session.flush_due:
                session.commit()
            if session.look_for_commands() or session.is_spent or session.spending.is_over:
                return self._finish_if_done()
        return self._finish_if_done()

    def _finish_if_done(self) -> bool:
        if self.step.next_item < self.items.count:
            return False
        # A range counts its items; the map itself counts as its last one.
        if self.items.count == 0:
            self.session.count_units(1)
        self.session.hold_result(self.step, "succeeded")
        self.session.next_position = self.step.position + 1
        self.session.next_key = ""
        self.session.variables = {}
        # Later steps read the results from the database.
        self.session.commit()
        return True

    def _run_range(self) -> None:
        first = self.step.next_item
        end = self._end_of_range(first)
        self._first = first
        self._source = f"{effect_key(self.step)}[{first}]"
        step_runner.reserve(self.session, self.step, self._source, self.declared, calls=end - first)
        rows: list[dict[str, Any]] = []
        digests: list[str] = []
        failed = 0
        try:
            for item in self.items.read(first, end):
                digest = values.item_digest(self.step.method, item, self.extra)
                row = self._earlier.find(digest) or self._run_item(item)
                failed += "error" in row
                rows.append({**row, "item": item})
                digests.append(digest)
                self._check_failed(failed)
                session = self.session
                if session.flush_due or session.is_spent or session.spending.is_over:
                    break
                if budgets.may_be_over(session):
                    break
                if session.look_for_commands():
                    break
        finally:
            if rows:
                self._hold(first, rows, digests, failed)

    def _end_of_range(self, first: int) -> int:
        """Return where a range ends: after a chunk, the last item, or the last step allowed."""
        end = min(first + self.chunk, self.items.count)
        limit = self.session.task.budget.get(BudgetKind.STEPS)
        if limit is None or not self.session.spending.is_limited:
            return end
        return min(
            end, first + max(0, limit - int(self.session.spending.counted[BudgetKind.STEPS]))
        )

    def _hold(
        self, first: int, rows: list[dict[str, Any]], digests: list[str], failed: int
    ) -> None:
        step = self.step
        step.next_item = first + len(rows)
        step.items_failed += failed
        self.session.variables = {"next_item": step.next_item}
        self.session.hold_range(
            {
                "step_id": step.id,
                "first_item": first,
                "end_item": step.next_item,
                "item_digests": digests,
                "results": values.pack(self.session.task.tenant_id, rows),
                "failed": failed,
            },
            len(rows),
        )
        self.session.hold_result(step, "running", finished=False)

    def _run_item(self, item: Any) -> dict[str, Any]:
        method = self.method
        positional, _ = values.bind(method, [item, *self.extra], {})
        try:
            result = step_runner.call(
                self.session, self.step, self.declared, lambda ctx: _call(method, ctx, positional)
            )
            value = step_runner.stored_form(self.session, self.step, method, result)
        except ItemError as error:
            if not self.collect:
                raise _ItemStopError(error) from error
            return {"error": storable({"code": error.code, "message": str(error.message)[:500]})}
        except Exception as error:
            self.step.attempts += 1
            # The last try of an item that a collecting map may pass over.
            is_last = isinstance(error, values.ResultInvalidError)
            is_last |= self.step.attempts >= self.declared.retry.max
            if self.collect and is_last:
                self.step.attempts = 0
                facts = step_runner.describe(error)
                return {"error": {"code": _CODE_FAILED, "message": facts["message"][:500]}}
            raise _ItemStopError(error) from error
        self.step.attempts = 0
        return {"result": value}

    def _check_failed(self, failed_here: int) -> None:
        total = self.step.items_failed + failed_here
        if self.max_failed is not None and total > self.max_failed:
            self.step.attempts = self.declared.retry.max
            raise _ItemStopError(
                TooManyFailedItemsError(f"{total} items failed, {self.max_failed} are allowed")
            )

    def flush(self) -> None:
        """Commit what was done of a range, and what it used."""
        session, done = self.session, self.step.next_item - self._first
        if not budgets.is_concerned(session, self.declared.estimate):
            session.commit()
            return
        with session.owned():
            budgets.settle(session, self._source, self.declared.estimate, calls=done)
            session.commit()


class _EarlierResults:
    """Results of the same map in plans that were replaced, found by item digest (E72).

    Only the digests stay in memory; a range is read when one of its items is asked for.
    """

    def __init__(self, session: SliceSession, step: Step) -> None:
        self._tenant_id = session.task.tenant_id
        self._places: dict[str, tuple[int, int]] = {}
        self._open: tuple[int, list[dict[str, Any]]] = (0, [])
        if step.plan_version > 1:
            self._read_digests(step)

    def find(self, digest: str) -> dict[str, Any] | None:
        """Return the result row of an item that was processed before, or None."""
        place = self._places.get(digest)
        if place is None:
            return None
        range_id, index = place
        if self._open[0] != range_id:
            stored = StepRange.objects.for_tenant(self._tenant_id).get(pk=range_id)
            self._open = (range_id, values.unpack(self._tenant_id, stored.results))
        row = self._open[1][index]
        return {"result": row["result"]} if "result" in row else None

    def _read_digests(self, step: Step) -> None:
        ranges = StepRange.objects.for_tenant(self._tenant_id).filter(
            task_id=step.task_id,
            step__method=step.method,
            step__kind="map",
            step__retired_in__isnull=False,
        )
        for range_id, digests in ranges.order_by("id").values_list("id", "item_digests"):
            self._places.update((d, (range_id, index)) for index, d in enumerate(digests))


def _call(method: Any, ctx: RunningStep, positional: list[Any]) -> Any:
    return method(ctx, *positional)
