"""The demo's story: real documents, a killed worker, an approval, one publication, a verified ledger.

Everything it says is read from the running product or counted outside of it; it returns 0 only
when all of it came true.
"""

import os
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime_project.bootstrap import step
from runtime_project.local import processes
from runtime_project.local.demo_client import DemoClient, Json
from runtime_project.local.demo_screen import Screen
from runtime_project.local.processes import LocalStackError
from runtime_project.local.stack import WORKERS, LocalStack

WORKFLOW = "contracts.review"
KILL_AT = 0.4
# A task that shows no change for so long is stuck, and the demo says so.
STUCK_SECONDS = 120.0
TAKE_OVER_SECONDS = 60.0
APPROVER_WAITS_SECONDS = 1.0
ENDED = {"completed", "failed", "cancelled", "dead_lettered"}


@dataclass
class Facts:
    """What the story saw; `missing` names every promise that did not come true."""

    task_id: str = ""
    killed: str = ""
    taken_over_by: str = ""
    decision: str = ""
    missing: list[str] = field(default_factory=list)
    peak_bytes: dict[int, int] = field(default_factory=dict)

    def check(self, holds: bool, promise: str) -> None:
        """Note a promise that does not hold."""
        if not holds:
            self.missing.append(promise)


def story(*, input_folder: Path | None, ends: bool) -> Callable[[LocalStack], int]:
    """Return the story to run on a started stack; it stays up afterwards unless it `ends`."""

    def tell(stack: LocalStack) -> int:
        code = Demo(stack, input_folder).run()
        if ends or code != 0:
            return code
        stack.stay_up()
        return code

    return tell


class Demo:
    """One telling of the story on one stack."""

    def __init__(self, stack: LocalStack, input_folder: Path | None) -> None:
        self.stack = stack
        self.screen = Screen()
        self.facts = Facts()
        self.input = input_folder or stack.inputs / "licences"
        self.collects = input_folder is None
        keys = stack.accounts.api_keys
        self.submitter = DemoClient(stack.url, keys["submitter"])
        self.approver = DemoClient(stack.url, keys["approver"])
        self.published_before = _entries(stack.published)

    def run(self) -> int:
        """Tell the story; return 0 when every promise came true."""
        started = time.monotonic()
        with self.submitter, self.approver:
            if self.collects:
                self._collect()
            self._submit()
            with self.screen:
                snapshot = self._watch()
            self._show_result(snapshot)
        self._verify_ledger()
        self._show_end(time.monotonic() - started)
        return 1 if self.facts.missing else 0

    def _collect(self) -> None:
        """Copy the licence texts of the installed packages: real documents on every machine."""
        from tasks_app.workflows.contracts.demo_input import collect_installed_licences

        with step("Licence texts of the installed packages"):
            count = collect_installed_licences(self.input)
        self.screen.say(f"  {count} documents in {self.input}")

    def _submit(self) -> None:
        goal = {"folder": str(self.input), "publish_to": str(self.stack.published)}
        self.facts.task_id = self.submitter.create_task(
            {
                "workflow": WORKFLOW,
                "title": "Demo: review of installed licences" if self.collects else "Demo: review",
                "goal": goal,
                "checkpointPolicy": {"everySteps": 10, "maxSeconds": 60},
                "approvalPolicy": {"before": ["publish_report"]},
            }
        )
        self.screen.say("✓ Task submitted twice with one Idempotency-Key: one task")
        self.screen.say(f"  {self._task_url()}")

    def _watch(self) -> Json:
        """Follow the task to its end, killing a worker and deciding the approval on the way."""
        snapshot = self._snapshot()
        changed, mark = time.monotonic(), _mark(snapshot)
        while snapshot["status"] not in ENDED:
            self._show_progress(snapshot)
            if not self.facts.killed and self._is_time_to_kill(snapshot):
                snapshot = self._kill_and_see(snapshot)
            if snapshot["status"] == "input_required" and snapshot.get("openApproval"):
                self._decide(snapshot["openApproval"])
            self.stack.supervisor.tick()
            time.sleep(0.05)
            snapshot = self._snapshot()
            if _mark(snapshot) != mark:
                changed, mark = time.monotonic(), _mark(snapshot)
            elif time.monotonic() - changed > STUCK_SECONDS:
                raise LocalStackError(
                    f"the task shows no change for {STUCK_SECONDS:.0f} s",
                    remedy="python3 manage.py demo -v",
                    log=self.stack.supervisor.log(WORKERS[1]),
                )
        return snapshot

    def _is_time_to_kill(self, snapshot: Json) -> bool:
        lease, checkpoint = snapshot.get("lease"), snapshot.get("lastCheckpoint")
        return bool(
            (snapshot.get("progress") or 0) >= KILL_AT
            and snapshot["status"] == "working"
            and checkpoint
            and lease
            and self._find_worker(lease["pid"])
        )

    def _find_worker(self, pid: int) -> str:
        """Return the name of the worker whose process group a pid is in, or ""."""
        with suppress(ProcessLookupError):
            group = os.getpgid(pid)
            return next((n for n in WORKERS if self.stack.supervisor.pid(n) == group), "")
        return ""

    def _kill_and_see(self, snapshot: Json) -> Json:
        """Kill the worker that holds the lease; return the snapshot after the take-over."""
        lease = snapshot["lease"]
        worker = self._find_worker(lease["pid"])
        if not worker:
            return snapshot
        self._sample_memory()
        self.stack.supervisor.kill(worker)
        killed = time.monotonic()
        self.facts.killed = worker
        self.screen.say(
            f"✗ {worker} killed with SIGKILL at {snapshot['progress']:.0%}, "
            f"while it held the task (pid {lease['pid']}, fence {lease['fence']})"
        )
        latest = dict(snapshot)

        def is_taken_over() -> bool:
            latest.update(self._snapshot())
            new = latest.get("lease")
            self._show_progress(latest)
            if latest["status"] in ENDED:
                return True
            return bool(new and new["fence"] > lease["fence"])

        if not self.stack.supervisor.wait(is_taken_over, seconds=TAKE_OVER_SECONDS):
            raise LocalStackError(
                "nobody took the task over after its worker was killed",
                log=self.stack.supervisor.log("sweep"),
            )
        self._tell_take_over(latest, time.monotonic() - killed)
        return latest

    def _tell_take_over(self, snapshot: Json, seconds: float) -> None:
        lease = snapshot.get("lease") or {}
        pid = lease.get("pid")
        taker = self._find_worker(pid) if pid else ""
        self.facts.taken_over_by = taker
        checkpoint = (snapshot.get("lastCheckpoint") or {}).get("seq")
        self.facts.check(bool(taker), "another worker process took the task over")
        self.facts.check(snapshot.get("recoveries", 0) >= 1, "the take-over is recorded")
        self.screen.say(
            f"✓ taken over by {taker or 'nobody we know'} (pid {pid}, fence {lease.get('fence')}) "
            f"after {seconds:.1f} s, continued from checkpoint #{checkpoint}"
        )

    def _decide(self, open_approval: Json) -> None:
        approval = self.approver.approval(open_approval["id"])
        self._show_question(approval)
        decision = self._ask(approval) if self.screen.is_interactive else self._approver_decides()
        if not decision:
            self.screen.say("  Decided elsewhere.")
            self.facts.decision = "elsewhere"
            return
        self.approver.decide(approval, decision=decision, reason="Decided in the demo.")
        self.facts.decision = decision
        self.screen.say(f"✓ {decision}: decided by approver, not by the submitter")

    def _show_question(self, approval: Json) -> None:
        self.screen.say(f"? Approval needed: {approval.get('title') or approval['tool']}")
        for name, value in (approval.get("arguments") or {}).items():
            self.screen.say(f"  {name}: {_short(value)}")
        self.screen.say(f"  digest of exactly this: {approval['argsSha256']}")
        self.screen.say(f"  {self.stack.url}/approvals/{approval['id']}/")

    def _approver_decides(self) -> str:
        self.stack.supervisor.wait(lambda: False, seconds=APPROVER_WAITS_SECONDS)
        return "approve"

    def _ask(self, approval: Json) -> str:
        """Return approve or deny from one key, or "" when it was decided elsewhere meanwhile."""
        self.screen.say("  a approve · d deny")
        with self.screen.keys() as keys:
            while True:
                match keys.read():
                    case "a":
                        return "approve"
                    case "d":
                        return "deny"
                    case _:
                        pass
                self.stack.supervisor.tick()
                time.sleep(0.1)
                if self._snapshot().get("openApproval", {}) is None:
                    return ""

    def _show_result(self, snapshot: Json) -> None:
        self.facts.check(bool(self.facts.killed), "a worker was killed while it held the task")
        self.facts.check(snapshot["status"] == "completed", f"completed, not {snapshot['status']}")
        if snapshot["status"] != "completed":
            self.screen.say(f"✗ {snapshot['status']}: {_short(snapshot.get('error'))}")
            return
        self.screen.say("✓ Task completed")
        self._download()
        self._count_effects()

    def _download(self) -> None:
        folder = self.stack.home / "demo" / self.facts.task_id
        folder.mkdir(parents=True, exist_ok=True)
        artifacts = self.submitter.list_of(self.facts.task_id, "artifacts")
        shown = [a for a in artifacts if a.get("presented", True)]
        self.facts.check(bool(shown), "the task delivered artifacts")
        for artifact in shown:
            path, digest = self.submitter.download(artifact, folder)
            same = digest == artifact["sha256"]
            self.facts.check(same, f"{path.name} arrived unchanged")
            self.screen.say(f"{'✓' if same else '✗'} {path}")
            self.screen.say(f"  sha256 {digest}")

    def _count_effects(self) -> None:
        """Compare the ledger's effects with what really lies in the published folder."""
        effects = self.submitter.list_of(self.facts.task_id, "effects")
        new = sorted(_entries(self.stack.published) - self.published_before)
        rows = [
            (e.get("tool", ""), e.get("state", ""), str(e.get("attempts", "")), str(len(new)))
            for e in effects
        ]
        columns = ("effect", "state", "attempts", "times found outside")
        self.screen.table("Effects", columns, rows)
        expected = 0 if self.facts.decision == "deny" else 1
        self.facts.check(len(new) == expected, f"published {expected} times, not {len(new)}")
        self.facts.check(
            all(e.get("state") == "succeeded" for e in effects), "every effect succeeded"
        )
        twice = max(0, len(new) - len(effects))
        self.screen.say(f"{'✓' if twice == 0 else '✗'} executed twice: {twice}")
        for name in new:
            self.screen.say(f"  {self.stack.published / name}")

    def _verify_ledger(self) -> None:
        with step("Ledger and audit chain verified"):
            self.stack.commands.start_management("verify_audit_chain").finish()

    def _show_end(self, seconds: float) -> None:
        self._sample_memory()
        peak = max(self.facts.peak_bytes.values(), default=0) / 2**20
        self.screen.say(f"✓ Peak memory of a worker process {peak:.0f} MiB; story {seconds:.1f} s")
        for promise in self.facts.missing:
            self.screen.say(f"✗ Not as promised: {promise}")
        if self.facts.missing:
            self.screen.say(f"  Logs: {self.stack.logs}")
            return
        self.screen.say(f"\n{self.stack.summary()}")
        here = "python3 manage.py"
        self.screen.say("Next:")
        self.screen.say(f"  {here} demo --input DIR          your own documents")
        self.screen.say(f"  {here} up                        the same stack without a job")
        self.screen.say(
            f"  curl -H 'Authorization: Bearer {self.stack.accounts.api_keys['submitter']}' "
            f"{shlex.quote(f'{self.stack.url}/runtime/tasks/{self.facts.task_id}')}"
        )

    def _snapshot(self) -> Json:
        self._sample_memory()
        return self.submitter.snapshot(self.facts.task_id)

    def _show_progress(self, snapshot: Json) -> None:
        self.screen.progress(
            snapshot.get("phase") or "",
            int(snapshot.get("progressDone") or 0),
            snapshot.get("progressTotal"),
        )

    def _sample_memory(self) -> None:
        for name in WORKERS:
            for pid in processes.group_members(self.stack.supervisor.pid(name)):
                peak = processes.peak_memory_bytes(pid)
                self.facts.peak_bytes[pid] = max(peak, self.facts.peak_bytes.get(pid, 0))

    def _task_url(self) -> str:
        return f"{self.stack.url}/tasks/{self.facts.task_id}/"


def _mark(snapshot: Json) -> tuple[Any, ...]:
    return tuple(
        snapshot.get(k) for k in ("status", "stateVersion", "seq", "progressDone", "phase")
    )


def _entries(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if not entry.name.startswith(".")}


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:199] + "…"
