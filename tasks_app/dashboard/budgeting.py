"""The part of the New task form that says how much the task may use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.http import QueryDict
from django.utils.translation import gettext as _

from tasks_app.admission.budgets import kinds_to_grant
from tasks_app.dashboard.forms import FormField, ShownProblem
from tasks_app.dashboard.posting import read_whole
from tasks_app.domain.budgets import BudgetKind
from tasks_app.domain.errors import FieldProblem
from tasks_app.domain.principal import Principal
from tasks_app.templatetags import refusals, words
from tasks_app.workflows.definition import WorkflowInfo

_PART = "budget"


@dataclass(frozen=True, slots=True)
class BudgetForm:
    """One field for each kind; those under a limit of the tenant or agent must be filled."""

    fields: tuple[FormField, ...]

    @property
    def needed(self) -> bool:
        """Tell whether the task cannot start without one of them."""
        return any(item.required for item in self.fields)

    @property
    def opened(self) -> bool:
        """Tell whether somebody should see the fields at once."""
        return self.needed or any(item.value or item.error for item in self.fields)

    def problem_at(self, pointer: str) -> ShownProblem | None:
        """Return the problem of one of the fields, for the list above the form."""
        found = (item for item in self.fields if f"/{item.name}" == pointer and item.error)
        return next((ShownProblem(item.id, item.label, item.error) for item in found), None)


def build(
    principal: Principal,
    flow: WorkflowInfo,
    values: Mapping[str, object],
    problems: Iterable[FieldProblem] = (),
) -> BudgetForm:
    """Return the fields, filled with values by kind, problems at their fields."""
    own = {kind for kind, limit in flow.definition.budget.limits().items() if limit is not None}
    needed = kinds_to_grant(principal) - own
    errors = {problem.pointer: refusals.detail(problem) for problem in problems}
    return BudgetForm(
        tuple(
            FormField(
                pointer=f"/{kind}",
                kind="input",
                label=str(words.BUDGETS[kind]),
                help=_HELP.get(kind, lambda: "")(),
                required=kind in needed,
                value=values.get(kind, ""),
                error=errors.get(f"/{_PART}/{kind}", ""),
                minimum=0,
                step="1",
                input_type="number",
                part=_PART,
            )
            for kind in BudgetKind
        )
    )


def posted_values(posted: QueryDict) -> dict[str, str]:
    """Return what was typed, by kind."""
    return {kind.value: posted.get(f"{_PART}/{kind}", "").strip() for kind in BudgetKind}


def read(posted: QueryDict) -> tuple[dict[str, int], list[FieldProblem]]:
    """Return the limits that a form sets, and what is no whole number."""
    limits: dict[str, int] = {}
    problems = []
    for kind, text in posted_values(posted).items():
        number = read_whole(text)
        if number is not None:
            limits[kind] = number
        elif text:
            detail = _("A whole number from 0 on.")
            problems.append(FieldProblem(f"/{_PART}/{kind}", "invalid_value", detail))
    return limits, problems


_HELP = {
    BudgetKind.ACTIVE_SECONDS: lambda: _("In seconds."),
    BudgetKind.MONEY_MICROS: lambda: _("In millionths of the currency."),
}
