"""Plants a bug: the source of one function, or the text of one statement, with other words in it."""

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest import mock


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of the code under test.

    Attributes:
        where: `module:name`, or `module:Class.method`.
        old: text that stands there exactly once.
        new: what stands there instead.
    """

    where: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug that somebody might write.

    Attributes:
        story: what is wrong, in a few words.
    """

    name: str
    story: str
    edits: tuple[Edit, ...]


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Run with the bug in the code. Raises: LookupError when it no longer fits the code."""
    with ExitStack() as stack:
        for place, edits in _by_place(bug).items():
            owner, name = _owner(place)
            value = _edited(vars(owner)[name], edits, place)
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def _by_place(bug: Bug) -> dict[str, list[Edit]]:
    places: dict[str, list[Edit]] = {}
    for edit in bug.edits:
        places.setdefault(edit.where, []).append(edit)
    return places


def _owner(place: str) -> tuple[Any, str]:
    module, _, path = place.partition(":")
    owner: Any = import_module(module)
    *classes, name = path.split(".")
    for part in classes:
        owner = getattr(owner, part)
    return owner, name


def _edited(thing: Any, edits: list[Edit], place: str) -> Any:
    if isinstance(thing, str):
        return _replaced(thing, edits, place)
    function = inspect.unwrap(thing)
    source = _replaced(textwrap.dedent(inspect.getsource(function)), edits, place)
    scope: dict[str, Any] = {}
    exec(compile(source, f"<planted {place}>", "exec"), function.__globals__, scope)  # noqa: S102 - our own source
    return scope[function.__name__]


def _replaced(text: str, edits: list[Edit], place: str) -> str:
    for edit in edits:
        found = text.count(edit.old)
        if found != 1:
            raise LookupError(f"{place} holds {found} times: {edit.old}")
        text = text.replace(edit.old, edit.new)
    return text
