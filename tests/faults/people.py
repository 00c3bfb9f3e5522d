"""What people do during a run: answer, approve, resume; and, as faults, all at the same time."""

import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

from django.db import DatabaseError, InterfaceError, connection

from tasks_app.admission import approvals, commands
from tasks_app.domain.errors import RuntimeFault
from tasks_app.models import Approval, Task
from tests.faults.world import World
from tests.support.outside_oracles import Call


def steer(world: World, who: str, task_id: UUID, kind: str, version: int, **payload: Any) -> str:
    """Give a command and keep how it was answered, for the judge; return the answer."""
    command_id = uuid4()
    before = _version(world, task_id)
    try:
        commands.submit_command(
            world.people[who],
            task_id=task_id,
            command_id=command_id,
            type=kind,
            payload=payload,
            expected_version=version,
            reason="a run of faults",
            source="rest",
        )
        answer = "accepted"
    except RuntimeFault as refused:
        answer = refused.code
    call = Call(task_id, command_id, version, before, _version(world, task_id), answer)
    world.calls.setdefault(task_id, []).append(call)
    return answer


def decide(world: World, who: str, approval: Approval, decision: str) -> str:
    """Decide an approval as it was read; return the answer."""
    try:
        approvals.decide_approval(
            world.people[who],
            approval_id=approval.id,
            decision=decision,
            args_sha256=approval.args_sha256,
            expected_version=approval.version,
            reason="a run of faults",
            source="rest",
        )
    except RuntimeFault as refused:
        return refused.code
    return "accepted"


def attend(world: World, left_alone: Iterable[UUID] = ()) -> None:
    """Serve everything that waits for a person, as patient people would."""
    rows = Task.objects.for_tenant(world.tenant_id)
    for task in rows.filter(status__in=("input_required", "paused")).exclude(id__in=left_alone):
        serve(world, task)


def serve(world: World, task: Task) -> None:
    """Do the one thing that a waiting task needs."""
    if task.status == "paused":
        steer(world, "anna", task.id, "resume", task.state_version)
        return
    asked = Approval.objects.for_tenant(world.tenant_id).filter(task_id=task.id, status="pending")
    approval = asked.first()
    if approval is None:
        steer(world, "anna", task.id, "provide_input", task.state_version, answer={})
    else:
        decide(world, "approver1", approval, "approve")


def race_for_approval(world: World, chance: random.Random, approval: Approval) -> list[str]:
    """Have three people decide at once; return what each was told."""
    words = [chance.choice(("approve", "approve", "deny")) for _ in range(3)]
    return at_once(
        lambda word=word, number=number: decide(  # type: ignore[misc]
            world, f"approver{number}", approval, word
        )
        for number, word in enumerate(words, 1)
    )


def storm(world: World, chance: random.Random, task: Task) -> list[str]:
    """Have two people give six commands at once, all on the version that they saw."""
    kinds = ["pause", "resume", "set_priority", "adjust_goal", "pause", "set_priority"]
    if chance.random() < 0.15:
        kinds.append("cancel")
    payloads: dict[str, dict[str, Any]] = {
        "set_priority": {"priority": chance.randint(0, 9)},
        "adjust_goal": {"note": f"note {chance.random()}"},
    }
    return at_once(
        lambda kind=kind, who=who: steer(  # type: ignore[misc]
            world, who, task.id, kind, task.state_version, **payloads.get(kind, {})
        )
        for kind, who in zip(kinds, ("anna", "bert") * 4, strict=False)
    )


def at_once(calls: Iterable[Callable[[], str]]) -> list[str]:
    """Start the calls together, each on a connection of its own; an outage is an answer, too."""
    listed = list(calls)
    barrier = Barrier(len(listed))

    def run(call: Callable[[], str]) -> str:
        barrier.wait(timeout=10)
        try:
            return call()
        except (DatabaseError, InterfaceError):
            return "database_away"
        finally:
            connection.close()

    with ThreadPoolExecutor(len(listed)) as pool:
        return list(pool.map(run, listed))


def _version(world: World, task_id: UUID) -> int:
    version: int = (
        Task.objects.for_tenant(world.tenant_id)
        .values_list("state_version", flat=True)
        .get(pk=task_id)
    )
    return version
