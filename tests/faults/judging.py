"""After a run: every admitted task is judged by every oracle; what the outside counted decides."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ledger_app.models import AuditEntry
from ledger_app.services import audit
from tasks_app.models import Task
from tests.faults.kinds import Scene
from tests.support import evidence, oracles, outside_oracles
from tests.support.evidence import Evidence
from tests.support.oracles import OracleViolation
from tests.support.outside import Count

BATCH = 100


@dataclass
class Verdict:
    """What the oracles say of a run."""

    tasks: int = 0
    lost: list[str] = field(default_factory=list)
    duplicates: int = 0
    acts: int = 0
    chains: int = 0
    chains_verified: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    violations: list[OracleViolation] = field(default_factory=list)
    recoveries: int = 0

    @property
    def is_good(self) -> bool:
        """Tell whether every promise was kept."""
        kept = not (self.lost or self.duplicates or self.violations)
        return kept and self.chains == self.chains_verified


def judge(scene: Scene) -> Verdict:
    """Judge every task of a run, once nothing happens any more."""
    verdict = Verdict(tasks=len(scene.world.admitted))
    world = scene.world
    _check_damaged(scene, verdict)
    counts: dict[str, dict[str, Count]] = defaultdict(dict)
    for key, count in world.outside.counts().items():
        counts[key.partition(":")[0]][key] = count
        verdict.duplicates += max(0, count.acts - 1)
        verdict.acts += count.acts
    for at in range(0, len(world.admitted), BATCH):
        ids = world.admitted[at : at + BATCH]
        found = evidence.collect(Task.objects.for_tenant(world.tenant_id).filter(pk__in=ids))
        known = {one.task.id for one in found}
        verdict.lost += [str(task_id) for task_id in ids if task_id not in known]
        for one in found:
            _judge_one(scene, verdict, one, counts[str(one.task.id)])
    for stream in _other_streams():
        verdict.chains += 1
        verdict.chains_verified += audit.verify(stream).fault is None
    return verdict


def _other_streams() -> list[str]:
    """Return the audit streams that belong to no task."""
    rows = AuditEntry.objects.exclude(stream__startswith="task:").order_by()
    return list(rows.values_list("stream", flat=True).distinct())


def _judge_one(scene: Scene, verdict: Verdict, one: Evidence, counts: dict[str, Count]) -> None:
    task = one.task
    code = f" ({task.error['code']})" if task.error and "code" in task.error else ""
    verdict.outcomes[f"{task.status}{code}"] += 1
    verdict.recoveries += task.recoveries_total
    if task.status not in outside_oracles.HELD_BY_A_PERSON:
        verdict.lost.append(str(task.id))
    broken = oracles.find_violations([one])
    verdict.chains += 1
    verdict.chains_verified += not any(violation.oracle == "O5" for violation in broken)
    try:
        outside_oracles.check_acts(one, counts)
    except OracleViolation as violation:
        broken.append(violation)
    try:
        outside_oracles.check_answers(one, scene.world.calls.get(task.id, []))
    except OracleViolation as violation:
        broken.append(violation)
    verdict.violations += broken


def _check_damaged(scene: Scene, verdict: Verdict) -> None:
    """A task with a changed checkpoint is held; then the bit is put back for the other oracles."""
    rows = Task.objects.for_tenant(scene.world.tenant_id)
    for task_id, (checkpoint_id, text) in scene.damaged.items():
        task = rows.get(pk=task_id)
        held = task.status == "dead_lettered" and task.error["code"] == "checkpoint_damaged"
        if not held:
            message = f"its checkpoint was changed, and it is {task.status}"
            verdict.violations.append(OracleViolation("O6", message, task_id))
        _put_back(scene, checkpoint_id, text)


def _put_back(scene: Scene, checkpoint_id: int, text: str) -> None:
    scene.world.as_superuser(
        "UPDATE tasks_app_checkpoint SET document = %s WHERE id = %s", (text, checkpoint_id)
    )


def by_oracle(verdict: Verdict) -> dict[str, dict[str, Any]]:
    """Return for each oracle how often it was asked about a task and what it found."""
    found = Counter(violation.oracle for violation in verdict.violations)
    return {
        name: {"promise": promise, "violations": found[name]}
        for name, promise in oracles.ORACLES.items()
    }


def ids_of(verdict: Verdict) -> list[UUID | None]:
    """Return the tasks of which a promise was broken."""
    return [violation.task_id for violation in verdict.violations]
