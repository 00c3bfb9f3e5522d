"""An act as a person reads it: its title, its target, every argument with its parameter's name."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from tasks_app.domain.errors import RuntimeFault
from tasks_app.workflows import registry

_FOLDED_FROM = 1500
_TARGET_NAMES = ("target", "publish_to", "to", "recipient", "url", "folder", "path")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an act; a long one is folded, never cut."""

    name: str
    value: Any
    length: int

    @property
    def long(self) -> bool:
        """Tell whether a page folds it."""
        return self.length > _FOLDED_FROM


@dataclass(frozen=True, slots=True)
class Act:
    """One act in words."""

    title: str
    target: str
    arguments: tuple[Argument, ...]


def describe(workflow: str, tool: str, stored: Mapping[str, Any]) -> Act:
    """Return the act; without its workflow's code the arguments are numbered."""
    title, names = _declared(workflow, tool)
    pairs = list(_named(names, stored))
    arguments = tuple(
        Argument(name, value, len(json.dumps(value, ensure_ascii=False))) for name, value in pairs
    )
    texts = {name: value for name, value in pairs if isinstance(value, str) and value}
    target = next((texts[name] for name in _TARGET_NAMES if name in texts), "")
    return Act(title=title, target=target, arguments=arguments)


def _declared(workflow: str, tool: str) -> tuple[str, list[str]]:
    """Return title and parameter names of an effect's method, as far as it is installed."""
    try:
        definition = registry.get_definition(workflow)
        title = definition.step_definition(tool).title
    except RuntimeFault:
        return "", []
    names = list(inspect.signature(getattr(definition, tool)).parameters)
    return _(title) if title else "", names[2:]


def _named(names: list[str], stored: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if not {"args", "kwargs"} >= stored.keys():
        return list(stored.items())
    positional = stored.get("args", [])
    pairs = [
        (names[index] if index < len(names) else str(index + 1), value)
        for index, value in enumerate(positional)
    ]
    return [*pairs, *stored.get("kwargs", {}).items()]
