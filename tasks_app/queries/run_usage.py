"""What runs used: sums over the ledger's rows of a run and of the tasks that it started."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from ledger_app.queries import UsageTotal, usage_by_task
from tasks_app.domain.principal import Principal
from tasks_app.models import Task

MIDDLEWARE = "middleware"


@dataclass(slots=True)
class RunUsage:
    """Tokens of one run, or of several together.

    `by_caller` names `lead_agent`, `subagent` (tasks that the run started) and `middleware`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    by_caller: dict[str, int] = field(
        default_factory=lambda: {"lead_agent": 0, "subagent": 0, MIDDLEWARE: 0}
    )
    by_model: dict[str, int] = field(default_factory=dict)

    @property
    def total_tokens(self) -> int:
        """Return the tokens in and out."""
        return self.input_tokens + self.output_tokens

    def add(self, used: UsageTotal, *, is_child: bool) -> None:
        """Count what one model used for one kind of caller."""
        tokens = used.input_tokens + used.output_tokens
        caller = "subagent" if is_child else MIDDLEWARE
        if not is_child and used.caller != MIDDLEWARE:
            caller = "lead_agent"
        self.input_tokens += used.input_tokens
        self.output_tokens += used.output_tokens
        self.calls += used.calls
        self.by_caller[caller] += tokens
        self.by_model[used.model] = self.by_model.get(used.model, 0) + tokens


@dataclass(frozen=True, slots=True)
class ModelUse:
    """What one model used in a thread, and in how many runs."""

    tokens: int
    runs: int


@dataclass(frozen=True, slots=True)
class ThreadUsage:
    """Tokens of a thread's runs together."""

    total: RunUsage
    runs: int
    by_model: dict[str, ModelUse]


def usage_of_runs(principal: Principal, task_ids: Sequence[UUID]) -> dict[UUID, RunUsage]:
    """Return what each run used with all that it started, at any depth."""
    owner = _owners(principal, task_ids)
    totals = usage_by_task(tenant_id=principal.tenant_id, task_ids=list(owner))
    found = {task_id: RunUsage() for task_id in task_ids}
    for task_id, used in totals.items():
        for one in used:
            found[owner[task_id]].add(one, is_child=task_id not in found)
    return found


def sum_of(usages: Iterable[RunUsage]) -> ThreadUsage:
    """Return the sum over runs."""
    total, runs = RunUsage(), 0
    by_model: dict[str, ModelUse] = {}
    for usage in usages:
        runs += 1
        total.input_tokens += usage.input_tokens
        total.output_tokens += usage.output_tokens
        total.calls += usage.calls
        for caller, tokens in usage.by_caller.items():
            total.by_caller[caller] += tokens
        for model, tokens in usage.by_model.items():
            before = by_model.get(model, ModelUse(0, 0))
            by_model[model] = ModelUse(before.tokens + tokens, before.runs + 1)
    return ThreadUsage(total, runs, by_model)


def _owners(principal: Principal, task_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Return the run that each task belongs to: itself, or the one above it."""
    owner = {task_id: task_id for task_id in task_ids}
    level = list(task_ids)
    while level:
        children = Task.objects.visible_to(principal).filter(parent_id__in=level)
        pairs = list(children.values_list("pk", "parent_id"))
        owner |= {child: owner[parent] for child, parent in pairs if child not in owner}
        level = [child for child, _ in pairs]
    return owner
