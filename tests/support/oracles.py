"""The twelve oracles: what must be true of a task whatever was done to it on the way.

Every layer of the proof uses them: tests of this process, races, killed processes, seeded
schedules, real faults. None of them knows how a fault was made. Each raises an OracleViolation
that names it, so that a report can count; what happened outside is judged in `outside_oracles`.
"""

import itertools
from collections.abc import Callable, Iterable
from datetime import datetime
from uuid import UUID

from ledger_app.services import audit
from tasks_app.domain import checkpoint
from tasks_app.domain.states import EDGES, TERMINAL, TaskStatus, bumps_version
from tasks_app.engine.step_context import effect_key
from tasks_app.models import Step, Task
from tests.support.evidence import DONE, Evidence, collect, of, written

ORACLES = {
    "O1": "every admitted task has ended, waits, or is held for a person",
    "O2": "the other side counts each act at most once, each succeeded one exactly once",
    "O3": "the state version has no gap and no repeat",
    "O4": "nothing was written under an old fence",
    "O5": "the audit chain verifies, and an edit is found",
    "O6": "the checkpoint agrees with steps and ledger",
    "O7": "steering and approvals happened in one order that explains every answer",
    "O8": "usage is what was really used",
    "O9": "no act behind an unapproved, expired or re-argued approval",
    "O10": "an end is final and owns a receipt",
    "O11": "a client that loses frames comes to the same picture",
    "O12": "once the faults stop, everything settles in time",
}


class OracleViolation(AssertionError):  # noqa: N818 - it reads as what it is in a report
    """A promise was broken; `oracle` is its number."""

    def __init__(self, oracle: str, message: str, task_id: UUID | None = None) -> None:
        of_task = f" (task {task_id})" if task_id else ""
        super().__init__(f"{oracle}, {ORACLES[oracle]}: {message}{of_task}")
        self.oracle = oracle
        self.task_id = task_id


def demand(condition: object, oracle: str, message: str, task: Task | None = None) -> None:
    """Raise the oracle's violation unless the condition holds."""
    if not condition:
        raise OracleViolation(oracle, message, task.id if task else None)


def check_task(task: Task, *, at_rest: bool = False) -> None:
    """Check everything that a task's own rows can show.

    Args:
        at_rest: nothing happens any more, so that O1 must hold, too.

    Raises: OracleViolation.
    """
    check_evidence(of(task), at_rest=at_rest)


def check_all(tenant_id: UUID, *, at_rest: bool = True) -> list[Evidence]:
    """Check every task of a tenant, and return what was judged. Raises: OracleViolation."""
    found = collect(Task.objects.for_tenant(tenant_id))
    for evidence in found:
        check_evidence(evidence, at_rest=at_rest)
    return found


def check_evidence(evidence: Evidence, *, at_rest: bool) -> None:
    """Check one task's evidence. Raises: OracleViolation."""
    for check in TASK_CHECKS.values():
        check(evidence)
    if at_rest:
        check_lost(evidence)


# --- O1 ----------------------------------------------------------------------------------------


def check_lost(evidence: Evidence) -> None:
    """O1: the task has ended, or somebody or some time will wake it."""
    task = evidence.task
    match TaskStatus(task.status):
        case TaskStatus.QUEUED:
            demand(task.next_wake_at, "O1", "it is queued for no time at all", task)
            demand(not _is_due(evidence), "O1", "it is due, and nobody works on it", task)
        case TaskStatus.INPUT_REQUIRED:
            asked = any(row.status == "pending" for row in evidence.approvals)
            asked |= any(s.kind == "question" and s.status == "waiting" for s in evidence.plan)
            demand(asked, "O1", "it waits for a person, but asks nothing", task)
            demand(task.next_wake_at, "O1", "it waits for a person without a deadline", task)
        case TaskStatus.WORKING | TaskStatus.PAUSING | TaskStatus.RECOVERING:
            demand(False, "O1", f"it is {task.status}, and nobody works on it", task)
        case _:
            pass
    # A repair of a held task takes up what people told it before.
    waiting = [row.seq for row in evidence.commands if row.status == "pending"]
    is_held = task.status == TaskStatus.DEAD_LETTERED
    demand(
        is_held or not waiting, "O1", f"commands {waiting} were accepted and never applied", task
    )


def _is_due(evidence: Evidence) -> bool:
    newest = max((entry.at for entry in evidence.audit), default=None)
    wake_at: datetime | None = evidence.task.next_wake_at
    return newest is not None and wake_at is not None and wake_at <= newest


# --- O3, O11: versions and the journal -----------------------------------------------------------


def check_versions(evidence: Evidence) -> None:
    """O3: what was audited counts up by one, and the journal's status changes form one path."""
    task, known = evidence.task, 0
    for entry in evidence.audit:
        old, new = entry.envelope.get("old_version"), entry.envelope.get("new_version")
        if new is None:
            continue
        demand(new - known in {0, 1}, "O3", f"{known} was followed by {new}: {entry}", task)
        demand(old is None or old <= new, "O3", f"{old} became {new}: {entry}", task)
        known = new
    demand(known == task.state_version, "O3", f"{known} audited, {task.state_version} now", task)
    at, bumps = TaskStatus.QUEUED, 0
    for event in evidence.events:
        if event.type != "status":
            continue
        source, target = TaskStatus(event.data["source"]), TaskStatus(event.data["target"])
        edge = f"{source} -> {target}"
        demand(source == at, "O3", f"{edge} came while the task was {at}", task)
        demand(target in EDGES[source], "O3", f"{edge} is no edge", task)
        at, bumps = target, bumps + bumps_version(source, target)
    demand(at == task.status, "O3", f"the journal ends as {at}, the task is {task.status}", task)
    told = sum(event.type == "steering.applied" for event in evidence.events)
    least = 1 + bumps + told
    demand(task.state_version >= least, "O3", f"{task.state_version}, at least {least}", task)


def check_journal(evidence: Evidence) -> None:
    """O11: the journal is dense, so that a client notices every frame it lost."""
    seqs = [event.seq for event in evidence.events]
    dense = list(range(1, evidence.task.event_seq + 1))
    demand(seqs == dense, "O11", f"events {seqs} of {evidence.task.event_seq}", evidence.task)


# --- O4 ----------------------------------------------------------------------------------------


def check_fences(evidence: Evidence) -> None:
    """O4: no row was written under a fence after another worker had been let in."""
    task = evidence.task
    started = {row.fence: row.started_at for row in evidence.slices}
    demand(len(started) == len(evidence.slices), "O4", "two slices share a fence", task)
    demand(max(started, default=0) <= task.fence, "O4", "a slice is newer than the task", task)
    taken = {row.fence: row.ended_at for row in evidence.slices if row.outcome == "lost"}
    for name, fence, at in written(evidence):
        demand(fence in started, "O4", f"{name} carries fence {fence}, given to nobody", task)
        ends = [taken.get(fence), *(at for newer, at in started.items() if newer > fence)]
        first = min((end for end in ends if end is not None), default=None)
        if first is not None and at is not None:
            demand(at <= first, "O4", f"{name} was written under old fence {fence}", task)

    for row in evidence.checkpoints:
        said = checkpoint.parse(row.document, row.sha256).fence
        demand(said == row.fence, "O4", f"checkpoint {row.seq} of fence {said}, {row.fence}", task)


# --- O5 ----------------------------------------------------------------------------------------


def check_audit(evidence: Evidence) -> None:
    """O5: the task's audit chain verifies and agrees with the ledger."""
    verdict = audit.verify(f"task:{evidence.task.id}")
    demand(verdict.fault is None, "O5", str(verdict), evidence.task)


# --- O6 ----------------------------------------------------------------------------------------


def check_checkpoints(evidence: Evidence) -> None:
    """O6: checkpoints are dense and unharmed; the newest agrees with steps and ledger."""
    task = evidence.task
    documents = [checkpoint.parse(row.document, row.sha256) for row in evidence.checkpoints]
    seqs = [document.checkpoint_seq for document in documents]
    oldest = max(0, task.checkpoint_seq - checkpoint.KEEP_NEWEST)
    dense = list(range(oldest + 1, task.checkpoint_seq + 1))
    demand([seq for seq in seqs if seq > oldest] == dense, "O6", f"{seqs} of {dense}", task)
    old = {row.reason for row in evidence.checkpoints if row.seq <= oldest}
    nameless = old - set(checkpoint.NAMED_REASONS)
    demand(not nameless, "O6", f"kept old ones, written for {sorted(nameless)}", task)
    demand(bool(seqs) == bool(task.checkpoint_seq), "O6", "the newest one is missing", task)
    for one, two in itertools.pairwise(documents):
        demand(one.fence <= two.fence, "O6", f"fence {one.fence}, then {two.fence}", task)
        grows = one.steering_cursor <= two.steering_cursor
        demand(grows, "O6", f"cursor {one.steering_cursor}, then {two.steering_cursor}", task)
    if documents:
        _check_newest(evidence, documents[-1])


def _check_newest(evidence: Evidence, newest: checkpoint.CheckpointDocument) -> None:
    task = evidence.task
    demand(newest.task_id == str(task.id), "O6", "it belongs to another task", task)
    demand(newest.fence <= task.fence, "O6", "its fence was never given", task)
    known = newest.steering_cursor <= task.steering_cursor
    demand(known, "O6", "it knows commands that the task does not", task)
    demand(newest.plan_version <= task.plan_version, "O6", "its plan does not exist", task)
    if newest.plan_version < task.plan_version:
        return
    behind = newest.next_position <= task.next_position
    demand(behind, "O6", f"it is ahead: {newest.next_position} of {task.next_position}", task)
    done = {step.position for step in evidence.plan if _is_passed(step)}
    missing = set(range(newest.next_position)) - done
    demand(not missing, "O6", f"it passes over the open steps {sorted(missing)}", task)
    acts = {effect.key: effect for effect in evidence.effects}
    positions = {effect_key(step): step.position for step in evidence.plan}
    for act in newest.side_effects:
        stored = acts.get(act["key"])
        demand(stored is not None, "O6", f"the ledger does not know {act['key']}", task)
        if positions.get(act["key"], newest.next_position) < newest.next_position:
            same = act["state"] == acts[act["key"]].state
            demand(same, "O6", f"it says {act}, the ledger {acts[act['key']].state}", task)


def _is_passed(step: Step) -> bool:
    """Tell whether the cursor may lie behind a step; a function goes on past its loops and faults."""
    in_function = step.scope is not None
    return step.status in DONE or (in_function and (step.kind == "loop" or step.status == "failed"))


def check_cursor(evidence: Evidence) -> None:
    """O6: the cursor never jumped over work, and a finished act is a settled one."""
    task = evidence.task
    acts = {effect.key: effect for effect in evidence.effects}
    for step in evidence.plan:
        if step.position < task.next_position:
            demand(_is_passed(step), "O6", f"passed over {step.key}: {step.status}", task)
        if step.kind == "effect" and step.status == "succeeded":
            act = acts.get(effect_key(step))
            happened = act is not None and act.state in {"succeeded", "compensated"}
            demand(happened, "O6", f"{step.key} succeeded, its act is {act and act.state}", task)
    if task.status == TaskStatus.COMPLETED:
        left = [step.key for step in evidence.plan if not _is_passed(step)]
        demand(not left, "O6", f"completed without {left}", task)


# --- O7 ----------------------------------------------------------------------------------------


def check_commands(evidence: Evidence) -> None:
    """O7: accepted commands form one order of versions; each was applied once, in that order."""
    task, commands = evidence.task, evidence.commands
    seqs = [row.seq for row in commands]
    demand(seqs == list(range(1, task.command_seq + 1)), "O7", f"commands {seqs}", task)
    versions = [row.old_version for row in commands]
    rising = versions == sorted(set(versions))
    demand(rising, "O7", f"two commands were accepted on one version: {versions}", task)
    accepted = [entry.target for entry in evidence.audited("command.accepted")]
    ids = [str(row.command_id) for row in commands]
    demand(accepted == ids, "O7", f"accepted were {accepted}, stored are {ids}", task)
    seq_of = {str(row.command_id): row.seq for row in commands}
    decided = evidence.audited("command.applied", "command.rejected")
    order = [seq_of[entry.target] for entry in decided]
    demand(len(order) == len(set(order)), "O7", f"a command was applied twice: {order}", task)
    waited = [seq for seq in order if commands[seq - 1].type != "set_priority"]
    demand(waited == sorted(waited), "O7", f"applied in the order {order}", task)
    for row in commands:
        demand(row.expected_version == row.old_version, "O7", f"{row.seq} was stale", task)
        told = row.seq in order
        demand(told == (row.status in {"applied", "rejected"}), "O7", f"{row.seq} untold", task)
        if told and row.new_version is not None:
            demand(row.new_version > row.old_version, "O7", f"{row.seq} changed nothing", task)
        passed = row.status == "pending" and row.seq <= task.steering_cursor
        demand(not passed, "O7", f"the cursor has passed the waiting command {row.seq}", task)


def check_decisions(evidence: Evidence) -> None:
    """O7: each person decides once, and nobody decides what is decided."""
    for approval in evidence.approvals:
        given = evidence.decisions[approval.id]
        people = [row.approver_id for row in given]
        once = len(people) == len(set(people))
        demand(once, "O7", f"one person decided {approval.id} twice", evidence.task)
        granted = sum(row.decision == "approve" for row in given)
        denied = len(given) - granted
        fits = denied <= 1 and granted <= approval.required
        demand(fits, "O7", f"{approval.id}: {granted} for, {denied} against", evidence.task)
        if approval.status in {"approved", "consumed"}:
            agreed = granted == approval.required and not denied
            demand(agreed, "O7", f"{approval.id} is {approval.status} by {granted}", evidence.task)
        if approval.status == "denied":
            demand(denied == 1, "O7", f"{approval.id} was denied by nobody", evidence.task)
        entries = evidence.audited("approval.approve", "approval.deny")
        told = [entry for entry in entries if entry.target == str(approval.id)]
        same = len(told) == len(given)
        demand(same, "O7", f"{len(given)} decisions, {len(told)} audited", evidence.task)


# --- O9 ----------------------------------------------------------------------------------------


def check_approved(evidence: Evidence) -> None:
    """O9: an act that needs a person's leave had it: for these arguments, in time, once."""
    task = evidence.task
    approvals = {row.id: row for row in evidence.approvals}
    steps = {(step.key, step.plan_version): step for step in evidence.steps}
    used: set[UUID] = set()
    for act in evidence.effects:
        version = int(act.key.partition("@")[2] or 1)
        step = steps.get((act.step_key, version))
        if step is None or not step.options.get("approval") or act.begun_at is None:
            continue
        demand(act.approval_id, "O9", f"{act.key} was begun without an approval", task)
        demand(act.approval_id in approvals, "O9", f"{act.key}: {act.approval_id}", task)
        approval = approvals[act.approval_id]
        demand(approval.id not in used, "O9", f"{approval.id} let two acts through", task)
        used.add(approval.id)
        same = (act.tool, act.args_sha256) == (approval.tool, approval.args_sha256)
        demand(same, "O9", f"{act.key} is not the act that was approved", task)
        demand(approval.status == "consumed", "O9", f"{act.key}: {approval.status}", task)
        in_time = approval.consumed_at is not None and approval.consumed_at < approval.expires_at
        demand(in_time, "O9", f"{act.key} was begun after its approval had expired", task)
        given = evidence.decisions[approval.id]
        early = [row for row in given if row.decision == "approve" and row.at <= act.begun_at]
        demand(len(early) >= approval.required, "O9", f"{act.key}: {len(early)} agreed", task)
        seen = {row.args_sha256 for row in early}
        demand(seen == {act.args_sha256}, "O9", f"people saw other arguments than {act.key}", task)
        own = any(row.approver_id == task.initiator_id for row in early)
        demand(not own, "O9", f"{act.key} was approved by whoever asked for it", task)
    spent = {row.id for row in evidence.approvals if row.status == "consumed"}
    demand(spent <= used, "O9", f"approvals {spent - used} were used up for nothing", task)


# --- O10 ---------------------------------------------------------------------------------------


def check_ended(evidence: Evidence) -> None:
    """O10: an ended task owns one receipt, owes nothing, and nothing moved afterwards."""
    task = evidence.task
    if task.status not in TERMINAL:
        demand(not evidence.receipts, "O10", "an open task owns a receipt", task)
        return
    owned = [row.id for row in evidence.receipts] == [task.receipt_id]
    demand(owned, "O10", f"{len(evidence.receipts)} receipts, it names {task.receipt_id}", task)
    fits = evidence.receipts[0].outcome == task.status
    demand(fits, "O10", f"{task.status}, the receipt says {evidence.receipts[0].outcome}", task)
    demand(not evidence.owed, "O10", "it still owes a message", task)
    demand(task.lease_owner is None, "O10", "somebody still holds its lease", task)
    told = [event.type for event in evidence.events]
    demand(told.count("terminal") == 1, "O10", f"it ended {told.count('terminal')} times", task)
    demand(told[-1] == "terminal", "O10", f"{told[-1]} was told after its end", task)
    open_questions = [row.id for row in evidence.approvals if row.status == "pending"]
    demand(not open_questions, "O10", f"it still asks {open_questions}", task)
    times = [(name, at) for name, _, at in written(evidence) if not name.startswith("effect")]
    times += [(f"slice {row.fence}", row.started_at) for row in evidence.slices]
    ended = task.finished_at
    late = [name for name, at in times if at is not None and (ended is None or at > ended)]
    demand(not late, "O10", f"written after the end: {late}", task)


TASK_CHECKS: dict[str, Callable[[Evidence], None]] = {
    "O5 audit": check_audit,
    "O3 versions": check_versions,
    "O11 journal": check_journal,
    "O4 fences": check_fences,
    "O6 checkpoints": check_checkpoints,
    "O6 cursor": check_cursor,
    "O7 commands": check_commands,
    "O7 decisions": check_decisions,
    "O9 approvals": check_approved,
    "O10 end": check_ended,
}


def find_violations(evidence: Iterable[Evidence], *, at_rest: bool = True) -> list[OracleViolation]:
    """Return every broken promise instead of raising the first: for reports that count."""
    checks = [*TASK_CHECKS.values(), *([check_lost] if at_rest else [])]
    found = []
    for one in evidence:
        for check in checks:
            try:
                check(one)
            except OracleViolation as violation:
                found.append(violation)
    return found
