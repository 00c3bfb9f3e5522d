"""Limits of a tenant and its agents, and the prices in force."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from tasks_app.domain.principal import Principal
from tasks_app.models import Budget, Price
from tasks_app.queries.filters import Filters
from tasks_app.queries.paging import PAGE_SIZE, Page
from tasks_app.queries.rows import row_of


@dataclass(frozen=True, slots=True)
class LimitFilters(Filters):
    """What a list of limits is narrowed to."""

    kind: tuple[str, ...] = ()
    period: tuple[str, ...] = ()
    agent_id: UUID | None = None

    LOOKUPS: ClassVar = {"kind": "kind__in", "period": "period__in", "agent_id": "agent_id"}
    ORDERS: ClassVar = {"created": ("id",), "-created": ("-id",)}


@dataclass(frozen=True, slots=True)
class PriceFilters(Filters):
    """What a list of prices is narrowed to."""

    subject: str = ""
    unit: tuple[str, ...] = ()

    LOOKUPS: ClassVar = {"subject": "subject", "unit": "unit__in"}
    ORDERS: ClassVar = {"-created": ("-id",), "created": ("id",)}


@dataclass(frozen=True, slots=True)
class LimitRow:
    """A limit that stands above tasks; `reserved` is what live tasks were granted of it."""

    id: int
    kind: str
    period: str
    agent_id: UUID | None
    limit: int | None
    spent: int
    reserved: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What a million units of a model or tool cost; the highest version counts."""

    subject: str
    unit: str
    version: int
    micros_per_million: int
    created_at: datetime


def list_limits(
    principal: Principal,
    filters: LimitFilters = LimitFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[LimitRow]:
    """Return the limits of the tenant and its agents, oldest first by default."""
    rows = filters.narrow(Budget.objects.visible_to(principal).filter(task_id=None))
    return filters.keyset(principal, "budgets").page(rows, cursor, limit, limit_row)


def list_prices(
    principal: Principal,
    filters: PriceFilters = PriceFilters(),
    cursor: str | None = None,
    limit: int = PAGE_SIZE,
) -> Page[PriceRow]:
    """Return prices, the newest first by default."""
    rows = filters.narrow(Price.objects.visible_to(principal))
    return filters.keyset(principal, "prices").page(rows, cursor, limit, price_row)


def limit_row(row: Budget) -> LimitRow:
    """Return a limit as it is shown."""
    return row_of(LimitRow, row, limit=row.limit_amount)


def price_row(row: Price) -> PriceRow:
    """Return a price as it is shown."""
    return row_of(PriceRow, row)
