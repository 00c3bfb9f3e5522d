"""What a caller may set about a new task besides its goal: checked, and completed by its workflow."""

import unicodedata
from collections.abc import Mapping
from typing import Any

from tasks_app.domain.budgets import check_amounts, tighten
from tasks_app.domain.errors import FieldProblem, InvalidInputError
from tasks_app.workflows import Workflow, registry


def checked(
    definition: type[Workflow[Any, Any]],
    title: str | None,
    priority: int,
    checkpoint_policy: Mapping[str, Any] | None,
    approval_policy: Mapping[str, Any] | None,
    budget: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the settings as they are stored; `budget` holds the limits in force.

    Raises:
        InvalidInputError: with a pointer for each problem.
    """
    problems = [
        *_title_problems(title),
        *_priority_problems(priority),
        *_checkpoint_problems(checkpoint_policy or {}),
        *_approval_problems(definition, approval_policy or {}),
        *check_amounts(budget or {}, "/budget"),
    ]
    if problems:
        raise InvalidInputError("The task's settings are not valid.", problems)
    return {
        "priority": priority,
        "checkpoint_policy": dict(checkpoint_policy or {}),
        "approval_policy": dict(approval_policy or {}),
        "budget": tighten(definition.budget.limits(), budget or {}),
    }


def _title_problems(title: str | None) -> list[FieldProblem]:
    if not any(unicodedata.category(character) == "Cc" for character in title or ""):
        return []
    return [FieldProblem("/title", "invalid_value", "One line without control characters.")]


def _priority_problems(priority: object) -> list[FieldProblem]:
    if isinstance(priority, int) and not isinstance(priority, bool) and 0 <= priority <= 9:
        return []
    detail = "A whole number from 0 (first) to 9 (last)."
    return [FieldProblem("/priority", "invalid_value", detail)]


def _checkpoint_problems(policy: Mapping[str, Any]) -> list[FieldProblem]:
    limits = {"every_steps": (1, 1000), "max_seconds": (0.1, 3600)}
    problems = []
    for name, value in policy.items():
        pointer = f"/checkpointPolicy/{name}"
        if name not in limits:
            problems.append(FieldProblem(pointer, "unknown_field", "Not a field of this policy."))
            continue
        low, high = limits[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:
            problems.append(FieldProblem(pointer, "invalid_value", f"From {low} to {high}."))
    return problems


def _approval_problems(
    definition: type[Workflow[Any, Any]], policy: Mapping[str, Any]
) -> list[FieldProblem]:
    problems = [
        FieldProblem(f"/approvalPolicy/{name}", "unknown_field", "Not a field of this policy.")
        for name in policy
        if name != "before"
    ]
    before = policy.get("before", [])
    if not isinstance(before, list):
        problems.append(FieldProblem("/approvalPolicy/before", "invalid_type", "A list of names."))
        return problems
    effects = registry.effect_names(definition) if before else frozenset[str]()
    problems.extend(
        FieldProblem(
            f"/approvalPolicy/before/{number}",
            "unknown_act",
            f"This workflow has no act of that name; it has: {', '.join(sorted(effects)) or 'none'}.",
        )
        for number, name in enumerate(before)
        if name not in effects
    )
    return problems
