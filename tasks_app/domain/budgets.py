"""Kinds of budgets and their arithmetic: whole numbers only, no rows (security section 8)."""

from collections.abc import Mapping
from enum import StrEnum

from tasks_app.domain.errors import FieldProblem

# PostgreSQL's bigint, with room for sums.
MAX_AMOUNT = 2**53 - 1
# People are told when so much of a limit is used (S74).
NOTICE_PERCENT = (80, 100)
_PER_MILLION = 1_000_000


class BudgetKind(StrEnum):
    """What a task may use up."""

    STEPS = "steps"
    ACTIVE_SECONDS = "active_seconds"
    TOOL_CALLS = "tool_calls"
    TOKENS = "tokens"
    MONEY_MICROS = "money_micros"


# Counted by the engine as the task goes on; the others are reserved before a call is made.
COUNTED = frozenset({BudgetKind.STEPS, BudgetKind.ACTIVE_SECONDS})


def check_amounts(amounts: Mapping[str, object], pointer: str) -> list[FieldProblem]:
    """Return what is wrong with amounts by kind: unknown kinds, no whole numbers from 0 on."""
    kinds = {kind.value for kind in BudgetKind}
    problems = []
    for name, amount in amounts.items():
        at = f"{pointer}/{name}"
        if name not in kinds:
            problems.append(FieldProblem(at, "unknown_field", "Not a kind of budget."))
        elif amount is not None and (
            isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount <= MAX_AMOUNT
        ):
            problems.append(FieldProblem(at, "invalid_value", "A whole number from 0 on."))
    return problems


def tighten(*limits: Mapping[str, int | None]) -> dict[str, int]:
    """Return the lowest limit of each kind; None and a missing kind set no limit."""
    lowest: dict[str, int] = {}
    for mapping in limits:
        for kind, amount in mapping.items():
            if amount is not None:
                lowest[kind] = min(amount, lowest.get(kind, amount))
    return lowest


def share_of(limits: Mapping[str, int], share: float) -> dict[str, int]:
    """Return a part of each limit, rounded down: what a child task gets of its parent's."""
    return {kind: int(amount * share) for kind, amount in limits.items()}


def cost_micros(units: int, micros_per_million: int) -> int:
    """Return the price of so many units, rounded up to a whole micro (S73)."""
    return -(-units * micros_per_million // _PER_MILLION)


def notice_of(
    kind: str, before: float, after: float, limit: int | None
) -> dict[str, object] | None:
    """Return what people are told when `after` reached a share of the limit and `before` had not.

    A limit of 0 is reached by the first that is used.
    """
    if limit is None:
        return None
    reached = [
        percent
        for percent in NOTICE_PERCENT
        if (before * 100 < percent * limit <= after * 100) or (limit == 0 and before <= 0 < after)
    ]
    if not reached:
        return None
    return {"kind": str(kind), "percent": max(reached), "spent": int(after), "limit": limit}
