"""Loops of functions: a cursor over turns, moved together with the states in one commit.

A loop goes on at its open turn. The last turn of a loop that was left is gone through again when
the function is called again, from what is stored, so that what the author took out of it is there.
"""

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from typing_extensions import override

from tasks_app.domain.errors import ConfigurationError
from tasks_app.engine import safe_point
from tasks_app.engine.function_scope import Scope, Turn
from tasks_app.models import Step

if TYPE_CHECKING:
    from tasks_app.engine.function_runner import FunctionRun


class Loop:
    """What `workflows.functions.Loop` promises; its row is stored already."""

    def __init__(self, run: "FunctionRun", scope: Scope, row: Step, limit: int) -> None:
        self.run = run
        self.row = row
        self._limit = limit
        self._scope = scope
        self._turn: Turn | None = None
        self._iterated = False

    def __iter__(self) -> Iterator[Turn]:
        if self._iterated:
            raise ConfigurationError(f"{self.row.key} is iterated over once")
        self._iterated = True
        return _Turns(self)

    @property
    def is_over(self) -> bool:
        """Tell whether the loop was left, in this call of the function or in an earlier one."""
        return self.row.status == "succeeded"

    def next_turn(self, turns: "_Turns") -> Turn | None:
        """End the present turn and open the next one; None when there is none."""
        if self._turn is None:
            self.run.require_innermost(self._scope)
            if not self.is_over and self.row.next_item >= self._limit:
                # The goal was changed and allows fewer turns than there were.
                self.leave()
                return None
            if self.row.next_item:
                self.run.states.restore(self.run.task.tenant_id, self.row.result)
        elif not self._end_turn(self._turn):
            return None
        return self._open_turn(turns)

    def _open_turn(self, turns: "_Turns") -> Turn:
        index = self.row.next_item
        self.run.session.next_key = ""
        seen = weakref.ref(turns)
        self._turn = Turn(
            self.run,
            f"{self.row.key}[{index}]",
            index,
            # `break` drops the iterator: that is how the engine learns that a loop was left.
            lambda: seen() is not None,
            over=self.is_over,
        )
        self.run.enter(self._turn, self)
        return self._turn

    def _end_turn(self, turn: Turn) -> bool:
        """Store that a turn is done; return whether another one follows."""
        self.run.require_innermost(turn)
        if self.is_over or turn.is_stopped or turn.index + 1 >= self._limit:
            self.leave()
            return False
        turn.memo.settle()
        self.run.exit(turn)
        session, row = self.run.session, self.row
        row.next_item += 1
        row.result = self.run.states.pack(self.run.task.tenant_id)
        session.next_key = f"{row.key}[{row.next_item}]"
        session.hold_result(row, "running", result=row.result, finished=False)
        if turn.impure or session.flush_due:
            session.commit()
        session.arguments.forget(turn.memo.rows)
        safe_point.pass_by(session)
        return True

    def leave(self) -> None:
        """Note that the loop is over; its last turn stays open to be gone through again."""
        if self._turn is not None:
            self._turn.memo.settle()
            self.run.exit(self._turn)
        if not self.is_over:
            self.run.session.hold_result(self.row, "succeeded", result=self.row.result)


class _Turns(Iterator[Turn]):
    """The iterator; it lives exactly as long as the author's `for`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    @override
    def __next__(self) -> Turn:
        with self._loop.run.guarded():
            turn = self._loop.next_turn(self)
        if turn is None:
            raise StopIteration
        return turn
