"""What the caller of a list narrows it to, and in which order it wants the rows.

One dataclass for each list: a field for each filter, LOOKUPS from field to lookup, ORDERS from the
name of an order to its columns. The columns together are unique and never null.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from django.db.models import QuerySet

from tasks_app.domain.principal import Principal
from tasks_app.queries.paging import Keyset, keyset

RowsT = TypeVar("RowsT", bound=QuerySet[Any])
_NOTHING: tuple[object, ...] = (None, "", ())


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of one list; what is empty narrows nothing. `sort` is a name of ORDERS."""

    sort: str = ""

    LOOKUPS: ClassVar[Mapping[str, str]] = {}
    ORDERS: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @property
    def given(self) -> dict[str, Any]:
        """Return the filters that narrow something, by name."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        del values["sort"]
        return {name: value for name, value in values.items() if value not in _NOTHING}

    @property
    def order(self) -> tuple[str, ...]:
        """Return the columns to sort by; those of the first order if none is named."""
        return self.ORDERS[self.sort] if self.sort else next(iter(self.ORDERS.values()))

    def narrow(self, rows: RowsT) -> RowsT:
        """Return the rows that fit every filter of LOOKUPS."""
        given = self.given
        lookups = {self.LOOKUPS[name]: given[name] for name in given if name in self.LOOKUPS}
        return rows.filter(**lookups)

    def keyset(self, principal: Principal, name: str, *of: object) -> Keyset:
        """Return the keyset of the list so narrowed; cursors are bound to all of it."""
        given = sorted((key, str(value)) for key, value in self.given.items())
        return keyset(principal, name, *of, *given, order=self.order)
