"""Keyset cursors: signed, and bound to tenant, list and filter, so that one opens no other (S128)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.core import signing
from django.db.models import QuerySet

from tasks_app.domain.errors import InvalidInputError
from tasks_app.domain.principal import Principal

T = TypeVar("T")

PAGE_SIZE = 50
MAX_PAGE_SIZE = 200


@dataclass(frozen=True, slots=True)
class RowPage(Generic[T]):
    """Some rows of a list in order; `next_cursor` is None after the last."""

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Keyset:
    """Where one list stands: which list it is, its filter, and what it is ordered by."""

    name: str
    tenant: str
    filters: tuple[str, ...] = ()

    @property
    def _salt(self) -> str:
        return ":".join(("perdure.cursor", self.name, self.tenant, *self.filters))

    def write(self, key: Sequence[str | int]) -> str:
        """Return the cursor that goes on after the row with this key."""
        return signing.dumps(list(key), salt=self._salt)

    def read(self, cursor: str) -> list[Any]:
        """Return the key that a cursor was written with.

        Raises:
            InvalidInputError: damaged, or made for another tenant, list or filter.
        """
        try:
            key = signing.loads(cursor, salt=self._salt)
        except signing.BadSignature:
            raise InvalidInputError("The cursor does not belong to this list.") from None
        return list(key)


def keyset(principal: Principal, name: str, *filters: object) -> Keyset:
    """Return the keyset of a list as this principal's tenant and filters have it."""
    return Keyset(name, str(principal.tenant_id), tuple(str(value) for value in filters))


def page_of(
    rows: QuerySet[Any],
    keys: Keyset,
    *,
    limit: int,
    key_of: Callable[[Any], Sequence[str | int]],
    shape: Callable[[Any], T],
) -> RowPage[T]:
    """Return the first `limit` rows of an ordered queryset that already begins after the cursor."""
    size = max(1, min(limit, MAX_PAGE_SIZE))
    found = list(rows[: size + 1])
    more = len(found) > size
    return RowPage(
        items=tuple(shape(row) for row in found[:size]),
        next_cursor=keys.write(key_of(found[size - 1])) if more else None,
    )
