"""Pages by key. Cursors are signed, and bound to tenant, list and filter: one opens no other (S128)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.core import signing
from django.db.models import Q, QuerySet

from tasks_app.domain.errors import InvalidInputError
from tasks_app.domain.principal import Principal

T = TypeVar("T")

PAGE_SIZE = 50
MAX_PAGE_SIZE = 200


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows of a list in order; `next_cursor` is None after the last."""

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Keyset:
    """One list of one tenant: its columns in order ("-" for descending), and its filter.

    The columns together are unique and never null.
    """

    name: str
    tenant: str
    order: tuple[str, ...]
    filters: tuple[str, ...] = ()

    def page(
        self, rows: QuerySet[Any], cursor: str | None, limit: int, shape: Callable[[Any], T]
    ) -> Page[T]:
        """Return the rows after the cursor, at most MAX_PAGE_SIZE, in one query.

        Raises:
            InvalidInputError: the cursor is damaged, or was made for another list.
        """
        limit = max(1, min(limit, MAX_PAGE_SIZE))
        if cursor:
            rows = rows.filter(_behind(self.order, self.read(cursor)))
        return self.cut(list(rows.order_by(*self.order)[: limit + 1]), limit, shape)

    def cut(self, found: Sequence[Any], limit: int, shape: Callable[[Any], T]) -> Page[T]:
        """Return the page of rows that were read with one more than the limit."""
        more = len(found) > limit
        return Page(
            items=tuple(shape(row) for row in found[:limit]),
            next_cursor=self.write(found[limit - 1]) if more else None,
        )

    def write(self, row: Any) -> str:
        """Return the cursor that goes on after a row."""
        key = [_plain(getattr(row, column.lstrip("-"))) for column in self.order]
        return signing.dumps(key, salt=self._salt)

    def read(self, cursor: str) -> list[Any]:
        """Return the values of the columns that a cursor was written with.

        Raises:
            InvalidInputError: damaged, or made for another tenant, list or filter.
        """
        try:
            return list(signing.loads(cursor, salt=self._salt))
        except signing.BadSignature:
            raise InvalidInputError("The cursor does not belong to this list.") from None

    @property
    def _salt(self) -> str:
        return f"perdure.cursor:{(self.name, self.tenant, self.order, self.filters)!r}"


def keyset(principal: Principal, name: str, *filters: object, order: Sequence[str]) -> Keyset:
    """Return the keyset of a list as this principal's tenant and filters have it."""
    values = tuple(str(value) for value in filters)
    return Keyset(name, str(principal.tenant_id), tuple(order), values)


def _plain(value: Any) -> str | int:
    if isinstance(value, int):
        return value
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _behind(order: Sequence[str], key: Sequence[Any]) -> Q:
    """Return the condition of the rows behind a key.

    The bound on the first column says nothing new; an index on it can be entered there.
    """
    behind, same, bound = Q(), Q(), Q()
    for column, value in zip(order, key, strict=True):
        name, beyond = column.lstrip("-"), "lt" if column.startswith("-") else "gt"
        behind |= same & Q((f"{name}__{beyond}", value))
        bound = bound or Q((f"{name}__{beyond}e", value))
        same &= Q((name, value))
    return bound & behind
