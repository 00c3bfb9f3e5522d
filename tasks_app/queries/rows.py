"""From a row of the database to the frozen dataclass that leaves the app."""

from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RowT = TypeVar("RowT", bound="DataclassInstance")


def row_of(kind: type[RowT], source: object, **more: Any) -> RowT:
    """Return a dataclass with the attributes of the same names, and with what is given besides.

    Fields with a default are never read from the source.
    """
    for field in fields(kind):
        if field.name not in more and field.default is MISSING:
            more[field.name] = getattr(source, field.name)
    return kind(**more)
