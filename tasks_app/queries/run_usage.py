"""What runs used: sums over the ledger's rows of a run and of the tasks that it started."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from ledger_app.queries import UsageTotal, newest_usage, usage_by_task
from tasks_app.domain.principal import Principal
from tasks_app.models import Task

LEAD_AGENT, SUBAGENT, MIDDLEWARE = "lead_agent", "subagent", "middleware"
CALLERS = (LEAD_AGENT, SUBAGENT, MIDDLEWARE)


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Tokens of one run, or of several together.

    `by_caller` names `lead_agent`, `subagent` (tasks that the run started) and `middleware`.
    """

    input_tokens: int
    output_tokens: int
    calls: int
    by_caller: Mapping[str, int]
    by_model: Mapping[str, int]

    @property
    def total_tokens(self) -> int:
        """Return the tokens in and out."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class ModelUse:
    """What one model used in a thread, and in how many runs."""

    tokens: int
    runs: int


@dataclass(frozen=True, slots=True)
class ContextUse:
    """How much the newest call of a model in a thread carried and answered."""

    model: str
    input_tokens: int
    output_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class ThreadUsage:
    """Tokens of a thread's runs together; `context` is there once a model was called."""

    total: RunUsage
    runs: int
    by_model: Mapping[str, ModelUse]
    context: ContextUse | None = None


def usage_of_runs(principal: Principal, task_ids: Sequence[UUID]) -> dict[UUID, RunUsage]:
    """Return what each run used with all that it started, at any depth."""
    owner = _owners(principal, task_ids)
    totals = usage_by_task(tenant_id=principal.tenant_id, task_ids=list(owner))
    parts: dict[UUID, list[tuple[str, UsageTotal]]] = {task_id: [] for task_id in task_ids}
    for task_id, used in totals.items():
        parts[owner[task_id]] += [
            (_caller(one, is_child=task_id not in parts), one) for one in used
        ]
    return {task_id: _usage(found) for task_id, found in parts.items()}


def context_of(principal: Principal, task_ids: Sequence[UUID]) -> ContextUse | None:
    """Return the newest call that one of the runs made itself."""
    newest = newest_usage(tenant_id=principal.tenant_id, task_ids=task_ids)
    if newest is None:
        return None
    model, spent, made = newest
    return ContextUse(model, spent, made, spent + made)


def sum_of(usages: Collection[RunUsage], context: ContextUse | None = None) -> ThreadUsage:
    """Return the sum over runs."""
    tokens: Counter[str] = Counter()
    callers: Counter[str] = Counter(dict.fromkeys(CALLERS, 0))
    runs: Counter[str] = Counter()
    for usage in usages:
        tokens.update(usage.by_model)
        callers.update(usage.by_caller)
        runs.update(usage.by_model.keys())
    total = RunUsage(
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        calls=sum(usage.calls for usage in usages),
        by_caller=dict(callers),
        by_model=dict(tokens),
    )
    by_model = {model: ModelUse(tokens[model], runs[model]) for model in tokens}
    return ThreadUsage(total, len(usages), by_model, context)


def _caller(used: UsageTotal, *, is_child: bool) -> str:
    """Return who used it, as clients of the run door call it."""
    if is_child:
        return SUBAGENT
    return MIDDLEWARE if used.caller == MIDDLEWARE else LEAD_AGENT


def _usage(parts: Collection[tuple[str, UsageTotal]]) -> RunUsage:
    callers: Counter[str] = Counter(dict.fromkeys(CALLERS, 0))
    models: Counter[str] = Counter()
    for caller, used in parts:
        callers[caller] += used.input_tokens + used.output_tokens
        models[used.model] += used.input_tokens + used.output_tokens
    return RunUsage(
        input_tokens=sum(used.input_tokens for _, used in parts),
        output_tokens=sum(used.output_tokens for _, used in parts),
        calls=sum(used.calls for _, used in parts),
        by_caller=dict(callers),
        by_model=dict(models),
    )


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
