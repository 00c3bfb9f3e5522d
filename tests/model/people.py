"""People of a seed: operators who may be late, approvers who disagree, the same request twice."""

import json
import random
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.db import connection

from tasks_app.admission import approvals, commands
from tasks_app.domain.errors import RuntimeFault
from tasks_app.domain.principal import Principal
from tasks_app.models import Approval
from tests.model.actors import Actor
from tests.model.workflow import draw_operation
from tests.support.outside_oracles import Call

_COMMANDS = {
    "pause": 4,
    "resume": 6,
    "cancel": 1,
    "adjust_goal": 3,
    "provide_input": 3,
    "set_priority": 3,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What somebody saw of a task."""

    version: int
    script: list[dict[str, Any]]


@dataclass
class Operator:
    """Gives commands, often about what was on the screen some time ago."""

    principal: Principal
    actor: Actor
    tasks: list[UUID] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    _seen: dict[UUID, Seen] = field(default_factory=dict)
    _sent: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, tasks: list[UUID]) -> None:
        """Forget other seeds."""
        self.tasks = tasks
        self.calls, self._seen, self._sent = [], {}, []

    def act(self) -> None:
        """Look at a task, think, give a command; or send one a second time."""
        chance = self.actor.chance
        if self._sent and chance.random() < 0.1:
            self._send(chance.choice(self._sent), replayed=True)
            return
        task_id = chance.choice(self.tasks)
        if task_id not in self._seen or chance.random() < 0.7:
            self._seen[task_id] = look_at(task_id)
            if chance.random() < 0.5:
                self.actor.stop("operator.looked")
        kind = chance.choices(list(_COMMANDS), list(_COMMANDS.values()))[0]
        command = {
            "task_id": task_id,
            "command_id": uuid4(),
            "type": kind,
            "payload": self._payload(kind, self._seen[task_id], chance),
            "expected_version": self._seen[task_id].version,
            "reason": "the seed says so",
            "source": "rest",
        }
        self._sent.append(command)
        self._send(command, replayed=False)
        if chance.random() < 0.25:
            # People who are in a hurry say that, too.
            self.give(task_id, "set_priority", priority=chance.randint(0, 9))

    def give(self, task_id: UUID, kind: str, **payload: Any) -> None:
        """Give one command on the newest version."""
        command = {
            "task_id": task_id,
            "command_id": uuid4(),
            "type": kind,
            "payload": payload,
            "expected_version": look_at(task_id).version,
            "reason": "the seed says so",
            "source": "rest",
        }
        self._send(command, replayed=False)

    def _send(self, command: dict[str, Any], *, replayed: bool) -> None:
        task_id = command["task_id"]
        before = look_at(task_id).version
        try:
            commands.submit_command(self.principal, **command)
            answer = "accepted"
        except RuntimeFault as refusal:
            answer = refusal.code
        after = look_at(task_id).version
        self.calls.append(
            Call(
                task_id,
                command["command_id"],
                command["expected_version"],
                before,
                after,
                answer,
                replayed,
            )
        )

    def _payload(self, kind: str, seen: Seen, chance: random.Random) -> dict[str, Any]:
        if kind == "set_priority":
            return {"priority": chance.randint(0, 9)}
        if kind == "provide_input":
            return {"answer": {"yes": True}}
        if kind == "adjust_goal":
            return {"script": _changed(list(seen.script), chance)}
        return {}


def look_at(task_id: UUID) -> Seen:
    """Return what is on the screen of somebody who looks at a task now."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT state_version, goal FROM tasks_app_task WHERE id = %s", [task_id])
        version, goal = cursor.fetchone()
    return Seen(version, json.loads(goal)["script"])


def _changed(script: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """Return a script with one operation more, less, or other than before."""
    at = chance.randrange(len(script))
    new = draw_operation(chance, f"new{chance.randint(0, 99)}")
    match chance.choice(["add", "drop", "swap", "keep"]):
        case "add":
            script.append(new)
        case "drop" if len(script) > 1:
            del script[at]
        case "swap":
            script[at] = new
        case _:
            pass
    return script


@dataclass
class Approver:
    """Decides about acts, sometimes about what no longer waits."""

    principal: Principal
    actor: Actor
    tasks: list[UUID] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _seen: Approval | None = None

    def begin(self, tasks: list[UUID]) -> None:
        """Forget other seeds."""
        self.tasks = tasks
        self.errors, self._seen = [], None

    def act(self, *, agree: bool | None = None) -> None:
        """Look at the inbox, think, decide."""
        chance = self.actor.chance
        if self._seen is None or agree is not None or chance.random() < 0.8:
            self._seen = self._find(chance)
            if self._seen is None:
                return
            if chance.random() < 0.5:
                self.actor.stop("approver.looked")
        yes = chance.random() < 0.75 if agree is None else agree
        try:
            approvals.decide_approval(
                self.principal,
                approval_id=self._seen.id,
                decision="approve" if yes else "deny",
                args_sha256=self._seen.args_sha256,
                expected_version=self._seen.version,
                reason="the seed says so",
                source="rest",
            )
        except RuntimeFault as refusal:
            self.errors.append(refusal.code)

    def _find(self, chance: random.Random) -> Approval | None:
        rows = Approval.objects.for_tenant(self.principal.tenant_id).filter(
            status="pending", task_id__in=self.tasks
        )
        found = list(rows.order_by("created_at"))
        return chance.choice(found) if found else None
