"""A whole site of real processes for acceptance tests: web, workers, sweeper, the outside world.

Everything a test does to it, it does as a client would: over HTTP with somebody's API key. Only
time, a message and a checkpoint are touched behind its back, since no client can.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import UUID

import httpx
from celery import current_app
from django.db import connection, transaction

from runtime_project.local.processes import wait_until
from tasks_app.engine.continuation import JOB_NAME
from tasks_app.models import Checkpoint
from tasks_app.policy.capabilities import CAPABILITIES
from tests import factories
from tests.support.outside import Count, Outside
from tests.support.syncdir import SyncDir
from tests.support.workers import Fleet, WebProcess

PATIENCE_SECONDS = 45.0
REST = frozenset({"completed", "failed", "cancelled", "dead_lettered", "paused", "input_required"})

Answer = dict[str, Any]


class Person(httpx.Client):
    """Somebody with an API key; paths are below /runtime."""

    def __init__(self, site: str, key: str) -> None:
        super().__init__(
            base_url=f"{site}/runtime",
            headers={"Authorization": f"Bearer {key}"},
            trust_env=False,
            timeout=20,
        )
        self.key = key

    def read(self, path: str, **query: str | int) -> Answer:
        """Return the JSON of an address that must answer."""
        found: Answer = super().get(path, params=query).raise_for_status().json()
        return found

    def steer(self, task: Answer, kind: str, *, reason: str, **payload: Any) -> httpx.Response:
        """Give a command to the task as this person saw it."""
        return self.post(
            f"/tasks/{task['taskId']}/commands",
            json={
                "type": kind,
                "payload": payload,
                "expectedVersion": task["stateVersion"],
                "reason": reason,
            },
        )


class Site:
    """The processes, the people who use them, and what a client cannot do."""

    def __init__(self, folder: Path, outside: Outside) -> None:
        self.folder = folder
        self.outside = outside
        self.fleet = Fleet(folder)
        self.sync = SyncDir(self.fleet.folder / "sync")
        self.web = WebProcess("web", folder, self.fleet.env)
        self.tenant = factories.make_tenant(slug="acceptance")
        self.runs = folder / "runs"
        self.submitter = self._person("submitter")
        self.anna, self.bert = self._person("operator"), self._person("operator")
        self.approver = self._person("approver")

    def start(self) -> None:
        """Return when web and two workers are ready."""
        self.fleet.start(workers=2)
        self.web.wait_ready()

    def stop(self) -> None:
        """End every process."""
        for person in (self.submitter, self.anna, self.bert, self.approver):
            person.close()
        self.web.kill_group()
        self.fleet.stop()

    def _person(self, role: str) -> Person:
        user = factories.make_member(self.tenant, role)
        _, key = factories.make_api_key(self.tenant, user, tuple(CAPABILITIES))
        return Person(self.web.url, key)

    # --- what a script is made of --------------------------------------------------------------

    def work(self, **rest: Any) -> Answer:
        """Return a step that counts its executions and commits its result."""
        return {"op": "say", "append": str(self.runs), "impure": True, **rest}

    def act(self, name: str, **rest: Any) -> Answer:
        """Return an act on the outside world."""
        return {"op": "effect", "key": name, "post": f"{self.outside.url}/{name}", **rest}

    # --- as a client ---------------------------------------------------------------------------

    def submit(self, *script: Answer, **rest: Any) -> Answer:
        """Start a task and return its snapshot."""
        body = {"workflow": "scripted", "goal": {"script": list(script)}, **rest}
        answer = self.submitter.post("/tasks", json=body)
        assert answer.status_code == httpx.codes.CREATED, answer.text
        return self.snapshot(answer.json())

    def snapshot(self, task: Answer) -> Answer:
        """Return the authoritative state of a task."""
        return self.submitter.read(f"/tasks/{task['taskId']}")

    def list_of(self, task: Answer, what: str, **query: int) -> list[Answer]:
        """Return a history of the task: steps, checkpoints, effects, journal, audit, commands."""
        items: list[Answer] = []
        answer = self.anna.read(f"/tasks/{task['taskId']}/{what}", limit=200, **query)
        items += answer["items"]
        while answer["nextCursor"]:
            answer = self.anna.read(
                f"/tasks/{task['taskId']}/{what}", limit=200, cursor=answer["nextCursor"], **query
            )
            items += answer["items"]
        return items

    def wait(self, task: Answer, condition: Callable[[Answer], bool], what: str) -> Answer:
        """Read the snapshot until a condition holds; return it."""
        seen: list[Answer] = [task]

        def holds() -> bool:
            seen[0] = self.snapshot(task)
            return condition(seen[0])

        assert wait_until(holds, seconds=PATIENCE_SECONDS), f"never {what}: {seen[0]}"
        return seen[0]

    def wait_for(self, task: Answer, *statuses: str) -> Answer:
        """Wait until the task has one of the statuses."""
        return self.wait(task, lambda seen: seen["status"] in statuses, " or ".join(statuses))

    def wait_rest(self, task: Answer) -> Answer:
        """Wait until the task has ended or waits for a person."""
        return self.wait_for(task, *REST)

    def approve(self, task: Answer) -> None:
        """Approve what the task asks for, as the approver sees it."""
        asked = self.approver.read(f"/tasks/{task['taskId']}")["openApproval"]
        body = {
            "decision": "approve",
            "argsSha256": asked["argsSha256"],
            "expectedVersion": asked["version"],
            "reason": "read it",
        }
        answer = self.approver.post(f"/approvals/{asked['id']}/decision", json=body)
        assert answer.status_code == httpx.codes.OK, answer.text

    # --- behind its back -----------------------------------------------------------------------

    def counts(self, task: Answer) -> dict[str, Count]:
        """Return what the outside world saw of a task's effect keys."""
        return self.outside.counts(task["taskId"])

    def executions(self) -> list[str]:
        """Return the keys of counted steps in the order in which they ran."""
        return self.runs.read_text().splitlines() if self.runs.exists() else []

    def pass_minutes(self, task: Answer, minutes: int) -> None:
        """Move time for one task: everything it waits for comes that much sooner."""
        with connection.cursor() as cursor:
            for table, column, key in (
                ("tasks_app_task", "next_wake_at", "id"),
                ("tasks_app_step", "wake_at", "task_id"),
            ):
                cursor.execute(
                    f"UPDATE {table} SET {column} = {column} - make_interval(mins => %s)"
                    f" WHERE {key} = %s AND {column} IS NOT NULL",
                    [minutes, task["taskId"]],
                )

    def send_message(self, task: Answer) -> None:
        """Deliver the task's message once more."""
        current_app.send_task(JOB_NAME, args=[task["taskId"], "again"], queue="slices")

    def change_newest_checksum(self, task: Answer) -> None:
        """Do what the schema's triggers refuse to everybody but the table's owner."""
        rows = Checkpoint.objects.for_tenant(self.tenant.id).filter(task_id=task["taskId"])
        newest = rows.order_by("seq").last()
        assert newest is not None
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE tasks_app_checkpoint DISABLE TRIGGER USER")
            cursor.execute(
                "UPDATE tasks_app_checkpoint SET sha256 = %s WHERE id = %s", ["0" * 64, newest.pk]
            )
            cursor.execute("ALTER TABLE tasks_app_checkpoint ENABLE TRIGGER USER")


def id_of(task: Answer) -> UUID:
    """Return a task's id as the sync points take it."""
    return UUID(task["taskId"])


def at_once(*calls: Callable[[], httpx.Response]) -> list[httpx.Response]:
    """Return the answers of requests that start together."""
    barrier = Barrier(len(calls))

    def run(call: Callable[[], httpx.Response]) -> httpx.Response:
        barrier.wait(timeout=10)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
