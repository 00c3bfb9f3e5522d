"""The demo's story: real documents, a killed worker, an approval, one publication, a verified ledger.

Everything it says is read from the running product or counted outside of it; it returns 0 only
when all of it came true.
"""

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime_project.bootstrap import step
from runtime_project.local.demo_checks import Facts, count_effects, download_artifacts
from runtime_project.local.demo_client import DemoClient, Json
from runtime_project.local.demo_crash import WorkerCrash
from runtime_project.local.demo_screen import Screen
from runtime_project.local.processes import LocalStackError
from runtime_project.local.stack import WORKERS, LocalStack

WORKFLOW = "contracts.review"
POLL_SECONDS = 0.05
# A task that shows no change for so long is stuck, and the demo says so.
STUCK_SECONDS = 120.0
APPROVER_WAITS_SECONDS = 1.0
ENDED = {"completed", "failed", "cancelled", "dead_lettered"}


def story(*, input_folder: Path | None, ends: bool) -> Callable[[LocalStack], int]:
    """Return the story to run on a started stack; it stays up afterwards unless it `ends`."""

    def tell(stack: LocalStack) -> int:
        demo = Demo(stack, input_folder)
        code = demo.run()
        demo.say_what_next(ends=ends)
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
        log = stack.supervisor.log("web")
        self.submitter = DemoClient(stack.url, keys["submitter"], log)
        self.approver = DemoClient(stack.url, keys["approver"], log)
        self.crash = WorkerCrash(stack, self.submitter, self.facts, self.screen)

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
        with step("Ledger and audit chain verified"):
            self.stack.commands.start_management("verify_audit_chain").finish()
        self.facts.sample_memory(self.stack)
        self.screen.say(
            f"✓ Peak memory of a worker process {self.facts.peak_mebibytes:.0f} MiB; "
            f"the job took {time.monotonic() - started:.1f} s"
        )
        for promise in self.facts.broken:
            self.screen.say(f"✗ Not as promised: {promise}")
        return 1 if self.facts.broken else 0

    def say_what_next(self, *, ends: bool) -> None:
        """Tell where to look, how to sign in, and three commands to go on with."""
        if self.facts.broken:
            self.screen.say(f"  Logs: {self.stack.logs}")
            return
        self.screen.say()
        here = "  python3 manage.py"
        if ends:
            self.screen.say("The stack stops now; tasks and files stay. Next:")
            self.screen.say(f"{here} up                  look at it in a browser")
            self.screen.say(f"{here} demo --input DIR    review documents of your own")
            self.screen.say(f"{here} test                run every check")
            return
        key = self.stack.accounts.api_keys["submitter"]
        address = shlex.quote(f"{self.stack.url}/runtime/tasks/{self.facts.task_id}")
        self.screen.say(f"{self.stack.summary()}\nNext, in another terminal:")
        self.screen.say(f"  curl -H 'Authorization: Bearer {key}' {address}")
        self.screen.say(f"{here} verify_audit_chain  check the ledger again")
        self.screen.say(f"{here} down                stop; then demo --input DIR reviews yours")
        self.screen.say("Ctrl-C stops it, too.")

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
                "title": f"Demo: review of {self.input.name}",
                "goal": goal,
                "checkpointPolicy": {"everySteps": 10, "maxSeconds": 60},
                "approvalPolicy": {"before": ["publish_report"]},
            }
        )
        self.screen.say("✓ Task submitted twice with one Idempotency-Key: one task")
        self.screen.say(f"  {self.stack.url}/tasks/{self.facts.task_id}/")

    def _watch(self) -> Json:
        """Follow the task to its end, killing a worker and deciding the approval on the way."""
        snapshot = self._snapshot()
        changed, mark = time.monotonic(), _mark(snapshot)
        while snapshot["status"] not in ENDED:
            self._show_progress(snapshot)
            self.crash.try_at(snapshot)
            if snapshot["status"] == "input_required" and snapshot["openApproval"]:
                self._decide(snapshot["openApproval"]["id"])
            self.stack.supervisor.tick()
            time.sleep(POLL_SECONDS)
            snapshot = self._snapshot()
            if _mark(snapshot) != mark:
                changed, mark = time.monotonic(), _mark(snapshot)
            elif time.monotonic() - changed > STUCK_SECONDS:
                raise self._stuck(snapshot)
        return snapshot

    def _stuck(self, snapshot: Json) -> LocalStackError:
        return LocalStackError(
            f"the task is {snapshot['status']} and shows no change for {STUCK_SECONDS:.0f} s",
            cause="the workers cannot reach Redis or the database, or a step hangs",
            remedy="python3 manage.py demo -v",
            log=self.stack.supervisor.log(WORKERS[1]),
        )

    def _decide(self, approval_id: str) -> None:
        approval = self.approver.approval(approval_id)
        self._show_question(approval)
        if self.screen.is_interactive:
            decision = self._ask()
        else:
            self.stack.supervisor.wait(lambda: False, seconds=APPROVER_WAITS_SECONDS)
            decision = "approve"
        if not decision:
            self.facts.decision = decision_of(self.approver.approval(approval_id)["status"])
            self.screen.say(f"✓ decided elsewhere: {self.facts.decision}")
            return
        self.approver.decide(approval, decision=decision, reason="Decided in the demo.")
        self.facts.decision = decision
        self.screen.say(f"✓ {decision}: decided by the approver, who is not the submitter")

    def _show_question(self, approval: Json) -> None:
        report = approval["display"]["show"]
        levels = ", ".join(f"{count} {level}" for level, count in report["levels"].items())
        self.screen.say(f"? {approval['tool']}: publish to {self.stack.published}?")
        self.screen.say(
            f"  {report['reviewed']} documents reviewed, {report['unreadable']} unreadable, "
            f"{report['clauses']} clauses found; risk: {levels}"
        )
        for risk in report["top_risks"][:3]:
            self.screen.say(f"  {risk['score']} {risk['path']}: {risk['reason'] or 'no finding'}")
        for file in report["files"]:
            self.screen.say(f"  {file['name']}, {file['size_bytes']:,} bytes")
        self.screen.say(f"  exactly this: sha256 {approval['argsSha256']}")
        self.screen.say(f"  {self.stack.url}/approvals/{approval['id']}/")

    def _ask(self) -> str:
        """Return approve or deny from one key, or "" when it was decided elsewhere meanwhile."""
        self.screen.say("  a approve · d deny")
        answers = {"a": "approve", "d": "deny"}
        pressed = ""

        def is_decided() -> bool:
            nonlocal pressed
            pressed = keys.read()
            return pressed in answers or self._snapshot()["openApproval"] is None

        with self.screen.keys() as keys:
            while not self.stack.supervisor.wait(is_decided, seconds=3600):
                pass
        return answers.get(pressed, "")

    def _show_result(self, snapshot: Json) -> None:
        status = snapshot["status"]
        if self.collects:
            self.facts.expect(
                "a worker is killed while it holds the task", holds=bool(self.facts.killed)
            )
        elif status == "completed":
            self.crash.tell_if_none()
        self.facts.expect(f"the task completes, and is not {status}", holds=status == "completed")
        if status != "completed":
            self.screen.say(f"✗ {snapshot['statusMessage']}")
            return
        self.screen.say("✓ Task completed")
        folder = self.stack.home / "demo" / self.facts.task_id
        download_artifacts(self.submitter, self.facts, folder, self.screen)
        count_effects(self.submitter, self.facts, self.stack.published, self.screen)

    def _snapshot(self) -> Json:
        self.facts.sample_memory(self.stack)
        return self.submitter.snapshot(self.facts.task_id)

    def _show_progress(self, snapshot: Json) -> None:
        done, total = snapshot["progressDone"], snapshot["progressTotal"]
        self.screen.progress(snapshot["phase"], done, total)


def decision_of(status: str) -> str:
    """Return how somebody else decided; an approval may be used already when we look."""
    return "approve" if status in {"approved", "consumed"} else "deny"


def _mark(snapshot: Json) -> tuple[Any, ...]:
    return tuple(snapshot[name] for name in ("status", "stateVersion", "seq", "progressDone"))
