"""What a function carries from turn to turn: typed values, changed in place, stored at a turn's end.

A function that is called again makes its values anew and changes them as it did before; where a
loop goes on at a later turn they are put back to what that turn began with.
"""

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_origin
from uuid import UUID

from pydantic import BaseModel

from ledger_app.domain.canonical import canonical_bytes, cleaned
from tasks_app.domain.errors import ConfigurationError
from tasks_app.engine import values

T = TypeVar("T")

LIMIT_BYTES = 262_144


class StateTooLargeError(ConfigurationError):
    """What a function carries from turn to turn is larger than it may be."""

    code = "state_too_large"


class States:
    """The states of one call of a function, by name."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, Any]] = {}

    def declare(self, name: str, type_: Any, initial: Any) -> Any:
        """Return the state's value, as it is before any loop."""
        if name in self._known:
            raise ConfigurationError(f"two states are called {name}")
        value = (get_origin(type_) or type_)() if initial is None else initial
        if not isinstance(value, BaseModel | list | dict) and not is_dataclass(value):
            raise ConfigurationError(f"state {name}: a model, a dataclass, a list or a dict")
        self._known[name] = (type_, value)
        return value

    def pack(self, tenant_id: UUID) -> dict[str, Any]:
        """Return what a loop's row stores.

        Raises: StateTooLargeError.
        """
        data = {
            name: cleaned(values.dump(type_, value)) for name, (type_, value) in self._known.items()
        }
        size = len(canonical_bytes(data))
        if size > LIMIT_BYTES:
            raise StateTooLargeError(
                f"The states hold {size} bytes, {LIMIT_BYTES} are allowed; store an artifact "
                "and keep its reference.",
                size_bytes=size,
                limit_bytes=LIMIT_BYTES,
            )
        return values.pack(tenant_id, {"states": data})

    def restore(self, tenant_id: UUID, stored: dict[str, Any] | None) -> None:
        """Put every value back to what was stored."""
        data = (values.unpack(tenant_id, stored) or {}).get("states", {})
        for name, (type_, value) in self._known.items():
            if name in data:
                _overwrite(value, values.typed(type_, data[name]))


def _overwrite(target: Any, source: Any) -> None:
    """Make an object equal to another of its type; the author's variables keep pointing at it."""
    match target:
        case list():
            target[:] = source
        case dict():
            target.clear()
            target.update(source)
        case BaseModel():
            for name in BaseModel.__slots__:
                object.__setattr__(target, name, getattr(source, name))
        case _:
            for field in fields(target):
                object.__setattr__(target, field.name, getattr(source, field.name))
