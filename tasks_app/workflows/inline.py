"""Tools that answer at once: quick functions that only read, offered to MCP clients beside workflows.

They run inside the request and leave no task. What takes long or changes something is a workflow.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel

from tasks_app.domain.errors import ConfigurationError
from tasks_app.workflows.definition import Question

F = TypeVar("F", bound=Callable[[Any], Any])

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Preflight = Callable[[Mapping[str, Any], Mapping[str, Mapping[str, Any]]], Mapping[str, Question]]

_known: dict[str, "InlineTool"] = {}


@dataclass(frozen=True, slots=True)
class InlineTool:
    """A function with the model of its arguments; it may return text, a model or JSON data."""

    name: str
    title: str
    description: str
    arguments: type[BaseModel]
    call: Callable[[Any], Any]
    preflight: Preflight | None = None


def inline_tool(
    *, name: str, title: str = "", description: str = "", preflight: Preflight | None = None
) -> Callable[[F], F]:
    """Offer `function(arguments)` as a tool; the model of its arguments is read from its annotation.

    Args:
        preflight: what to ask first, as `Workflow.preflight` does.

    Raises: ConfigurationError when the declaration is wrong or the name is taken.
    """

    def register(function: F) -> F:
        hints = get_type_hints(function)
        hints.pop("return", None)
        model = next(iter(hints.values()), None)
        if not (isinstance(model, type) and issubclass(model, BaseModel)) or len(hints) != 1:
            raise ConfigurationError(f"{name} must take one pydantic model")
        if not NAME.fullmatch(name):
            raise ConfigurationError(f"{name} is no name of a tool")
        known = _known.get(name)
        if known is not None and known.call.__module__ != function.__module__:
            raise ConfigurationError(f"two tools are called {name}")
        about = description or (function.__doc__ or "").strip() or title or name
        _known[name] = InlineTool(name, title or name, about, model, function, preflight)
        return function

    return register


def find_tool(name: str) -> InlineTool | None:
    """Return the tool of that name, if there is one."""
    return _known.get(name)


def list_tools() -> list[InlineTool]:
    """Return all of them by name."""
    return [_known[name] for name in sorted(_known)]


def forget(name: str) -> None:
    """Drop a tool: for tests that register one of their own."""
    _known.pop(name, None)
