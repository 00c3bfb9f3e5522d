"""What a scope of a function remembers: its stored calls by name, and whether a call is one of them.

A call comes to the same name with the same function and arguments when the code runs again, or the
goal was changed since. Anything else stops the task for a person.
"""

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from ledger_app.domain.canonical import cleaned, digest_of
from tasks_app.domain.errors import ConfigurationError
from tasks_app.engine.held import storable
from tasks_app.models import Step
from tasks_app.workflows.values import StepFailedError

if TYPE_CHECKING:
    from tasks_app.engine.function_runner import FunctionRun

MAX_ENTRIES = 500
KEY_MAX = 100

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")


class NotRepeatableError(ConfigurationError):
    """A function that was called again took another way than what is stored of it."""

    code = "not_repeatable"


class ScopeFullError(ConfigurationError):
    """A function or one turn of a loop made more calls than are kept for it (E10)."""

    code = "scope_full"


class Memo:
    """The stored calls of one scope.

    A scope is `over` when the loop of its turn was left: it only repeats what is stored.
    """

    def __init__(self, run: "FunctionRun", path: str, *, over: bool) -> None:
        self.path = path
        self.over = over
        self.rows = {row.key: row for row in run.read_rows(path)}
        self.reached: set[str] = set()
        self._run = run
        self._stored = len(self.rows)
        self._names: Counter[str] = Counter()

    @property
    def repeats(self) -> bool:
        """Tell whether what comes now was done before, so that nobody is told of it twice."""
        return self.over or len(self.reached) < self._stored

    def reach(
        self,
        name: str,
        kind: str,
        method: str,
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        options: dict[str, Any],
    ) -> Step:
        """Return the row of a call: the stored one, or a new one that has no row yet.

        Raises:
            StepFailedError: it failed for good before.
            NotRepeatableError: another call is stored under its name.
        """
        key, options = self._key(name), storable(options)
        encoded = _encoded(key, *arguments)
        signature = digest_of(
            {
                "kind": kind,
                "method": method,
                "arguments": encoded,
                "options": {n: value for n, value in options.items() if n != "external_id"},
            }
        )
        row = self.rows.get(key)
        if row is not None and row.signature != signature:
            row = self._other(row, method)
        if row is None:
            row = self._new(key, kind, method, options, signature)
        row.arguments = encoded
        self.reached.add(key)
        if row.status == "failed":
            raise StepFailedError(key, row.error or {})
        return row

    def _key(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r}: a name has letters, digits, _ and -, at most 60")
        self._names[name] += 1
        number = self._names[name]
        key = f"{self.path}/{name}" if self.path else name
        key = key if number == 1 else f"{key}.{number}"
        if len(key) > KEY_MAX:
            raise ConfigurationError(f"{key} is longer than {KEY_MAX} characters")
        return key

    def _new(
        self, key: str, kind: str, method: str, options: dict[str, Any], signature: str
    ) -> Step:
        task = self._run.task
        versions = {row.plan_version for row in self.rows.values()}
        if self.over and versions == {task.plan_version}:
            raise NotRepeatableError(f"{key} was not called when the loop was left.", step=key)
        if len(self.rows) >= MAX_ENTRIES:
            raise ScopeFullError(
                f"More than {MAX_ENTRIES} calls in {self.path or 'the function'}; use a loop.",
                scope=self.path,
            )
        row = Step(
            tenant_id=task.tenant_id,
            task_id=task.id,
            key=key,
            scope=self.path,
            position=self._run.take_position(),
            kind=kind,
            method=method,
            options=options,
            signature=signature,
            plan_version=task.plan_version,
        )
        self.rows[key] = row
        return row

    def _other(self, row: Step, method: str) -> Step | None:
        """Decide about a stored call that differs from the present one.

        A turn of a loop that was left is kept as it was. Otherwise a goal that was changed since
        explains the difference, and the call is made anew under a row, and a key, of its own.
        """
        if row.plan_version == self._run.task.plan_version:
            raise NotRepeatableError(
                f"{row.key} was stored for {row.method} and now calls {method} with arguments "
                "that differ; code between steps must do the same when it runs again.",
                step=row.key,
                stored=row.method,
                called=method,
            )
        if self.over and row.method == method:
            return row
        self._run.retire([row])
        return None

    def settle(self) -> None:
        """Take back what an earlier goal left open in a scope that now ends.

        Raises: NotRepeatableError when stored calls were not reached though the goal is the same.
        """
        left = [row for key, row in self.rows.items() if key not in self.reached]
        if self.over or not left:
            return
        version = self._run.task.plan_version
        strays = [row.key for row in left if row.plan_version == version]
        if strays:
            raise NotRepeatableError(
                f"{', '.join(strays[:5])} was stored, but the code came to its end without it.",
                step=strays[0],
            )
        self._run.retire(left)

    def forget(self, row: Step) -> None:
        """Drop a row that was retired."""
        self.rows.pop(row.key, None)


def _encoded(key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return {
            "args": [{"v": cleaned(to_jsonable_python(value))} for value in args],
            "kwargs": {
                name: {"v": cleaned(to_jsonable_python(value))} for name, value in kwargs.items()
            },
        }
    except Exception as error:
        raise ConfigurationError(f"{key}: arguments must be JSON data: {error}") from error
