"""The plan that undoes what a task did, before the task ends without success (E71).

Effects that have happened and declare a compensation are undone in reverse order, by ordinary
effects with ledger rows and approvals of their own.
"""

from datetime import timedelta
from typing import Any

from ledger_app.domain.canonical import digest_of
from ledger_app.domain.effects import EffectState
from ledger_app.queries import iterate_effect_summaries
from tasks_app.domain.errors import UnknownWorkflowError
from tasks_app.engine import plans
from tasks_app.engine.plans import PlanChange
from tasks_app.engine.step_context import effect_key
from tasks_app.models import Step, Task
from tasks_app.workflows import registry
from tasks_app.workflows.planning import Plan, PlannedStep

_DEADLINE = timedelta(hours=4)


def compensated_key(step: Step) -> str | None:
    """Return the ledger key of the act that a step undoes; None for every other step."""
    key: str | None = step.options.get("compensates")
    return key


def to_undo(task: Task) -> list[Step]:
    """Return the effect steps that have happened and can be undone, the newest act first.

    Acts of plans that were replaced count as well: what they did stands outside all the same.
    """
    try:
        definition = registry.get_definition(task.workflow)
    except UnknownWorkflowError:
        # Without the code nothing can be undone; the receipt tells what stands.
        return []
    methods = [act.name for act in registry.effects(definition) if act.compensate]
    if not methods:
        return []
    happened = {
        act.key: act.id
        for act in iterate_effect_summaries(
            tenant_id=task.tenant_id, task_id=task.id, states=[EffectState.SUCCEEDED]
        )
    }
    rows = Step.objects.for_tenant(task.tenant_id).filter(
        task_id=task.id, kind="effect", method__in=methods
    )
    return sorted(
        (row for row in rows if effect_key(row) in happened),
        key=lambda row: happened[effect_key(row)],
        reverse=True,
    )


def change_for(task: Task, acts: list[Step]) -> PlanChange:
    """Return the plan that undoes: what is finished closes ranks, what is open goes."""
    rows = list(plans.current(task.tenant_id, task.id).order_by("position"))
    finished = [row for row in rows if row.status in plans.DONE]
    undoing = _Undoing(task, first=len(finished), taken={row.key for row in rows})
    for act in acts:
        undoing.add(act)
    return PlanChange(
        plan=Plan(tuple(undoing.steps), task.plan_result or {"v": None}),
        kept=finished,
        moved=[
            (row.pk, _at(row, position))
            for position, row in enumerate(finished)
            if row.position != position
        ],
        added=undoing.steps,
        retired=[row.key for row in rows if row.status not in plans.DONE],
        first_open_position=len(finished),
    )


def _at(row: Step, position: int) -> PlannedStep:
    return PlannedStep(
        key=row.key,
        position=position,
        kind=row.kind,
        method=row.method,
        arguments=row.arguments,
        options=row.options,
        signature=row.signature,
    )


class _Undoing:
    """The plan that undoes."""

    def __init__(self, task: Task, *, first: int, taken: set[str]) -> None:
        self.steps: list[PlannedStep] = []
        self._first = first
        self._taken = taken
        self._definition = registry.get_definition(task.workflow)
        self._gated = frozenset(
            (*self._definition.approve_before, *task.approval_policy.get("before", ()))
        )

    def add(self, act: Step) -> None:
        """Plan the compensation of one act, behind an approval where one is wanted."""
        name = self._definition.step_definition(act.method).compensate
        declared = self._definition.step_definition(name)
        result = {"ref": act.key, "path": [], "step": act.id}
        options: dict[str, Any] = {"compensates": effect_key(act)}
        if declared.wants_approval(self._gated):
            options["approval"] = self._add(
                "approval",
                f"approve_{name}",
                {"args": [result], "kwargs": {}},
                {
                    "name": name,
                    "deadline_seconds": _DEADLINE.total_seconds(),
                    "quorum": 1,
                    "on_timeout": "deny",
                },
            )
        given = act.arguments
        arguments = {
            "args": [result, *(_as_planned(argument, act) for argument in given["args"])],
            "kwargs": {name: _as_planned(value, act) for name, value in given["kwargs"].items()},
        }
        self._add("effect", name, arguments, options)

    def _add(
        self, kind: str, method: str, arguments: dict[str, Any], options: dict[str, Any]
    ) -> str:
        key, number = method, 1
        while key in self._taken:
            number += 1
            key = f"{method}.{number}"
        self._taken.add(key)
        fields = {"kind": kind, "method": method, "arguments": arguments, "options": options}
        self.steps.append(
            PlannedStep(
                key=key,
                position=self._first + len(self.steps),
                signature=digest_of({"key": key, **fields}),
                **fields,  # type: ignore[arg-type]
            )
        )
        return key


def _as_planned(argument: dict[str, Any], act: Step) -> dict[str, Any]:
    """Return an argument of an act, bound to the very step that gave it.

    A step that was replaced with the act had the same key as a later one; it is the one that stood
    in the plan for which the act was planned.
    """
    if "ref" not in argument:
        return argument
    rows = Step.objects.for_tenant(act.tenant_id).filter(task_id=act.task_id, key=argument["ref"])
    given = rows.filter(plan_version__lte=act.plan_version)
    source = given.exclude(retired_in__lte=act.plan_version).values_list("id", flat=True)
    return {**argument, "step": source.get()}
