"""What the demo promises and how each promise is checked from outside the product."""

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.table import Table

from runtime_project.local import processes
from runtime_project.local.demo_client import DemoClient, Json
from runtime_project.local.demo_screen import Screen
from runtime_project.local.stack import WORKERS, LocalStack


@dataclass
class Facts:
    """What the story saw; `broken` names every promise that did not come true."""

    task_id: str = ""
    killed: str = ""
    decision: str = ""
    broken: list[str] = field(default_factory=list)
    peak_bytes: dict[int, int] = field(default_factory=dict)

    def expect(self, promise: str, *, holds: bool) -> None:
        """Note a promise that does not hold."""
        if not holds:
            self.broken.append(promise)

    def sample_memory(self, stack: LocalStack) -> None:
        """Remember the most memory that each worker process has held so far."""
        for name in WORKERS:
            for pid in processes.group_members(stack.supervisor.pid(name)):
                peak = processes.peak_memory_bytes(pid)
                self.peak_bytes[pid] = max(peak, self.peak_bytes.get(pid, 0))

    @property
    def peak_mebibytes(self) -> float:
        """The most memory that one worker process held."""
        return max(self.peak_bytes.values(), default=0) / 2**20


def download_artifacts(client: DemoClient, facts: Facts, folder: Path, screen: Screen) -> None:
    """Save what the task delivered and compare each file with its announced digest."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = [a for a in client.list_of(facts.task_id, "artifacts") if a["presented"]]
    facts.expect("the task delivers artifacts", holds=bool(shown))
    screen.say(f"Artifacts in {folder}")
    for artifact in shown:
        path, digest = client.download(artifact, folder)
        same = digest == artifact["sha256"]
        facts.expect(f"{path.name} arrives unchanged", holds=same)
        screen.say(f"  {'✓' if same else '✗'} {path.name}  sha256 {digest}")


def count_effects(client: DemoClient, facts: Facts, published: Path, screen: Screen) -> None:
    """Compare the ledger's effects with what really lies in the published folder."""
    effects = client.list_of(facts.task_id, "effects")
    if facts.decision == "deny":
        facts.expect("nothing is published after a refusal", holds=not effects)
        screen.say("✓ Nothing was published, as decided")
        return
    times = {e["key"]: times_published(published, e["key"]) for e in effects}
    table = Table(title="Effects", title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("effect", "state", "attempts", "found outside"):
        table.add_column(column)
    for effect in effects:
        found = "once" if times[effect["key"]] == 1 else f"{times[effect['key']]} times"
        table.add_row(effect["tool"], effect["state"], str(effect["attempts"]), found)
        screen.say(f"✓ Published: {_where(effect)}")
    screen.console.print(table)
    twice = sum(1 for count in times.values() if count > 1)
    noun = "effect" if len(effects) == 1 else "effects"
    screen.say(f"{'✓' if twice == 0 else '✗'} {len(effects)} {noun}, {twice} twice")
    facts.expect("one effect is in the ledger", holds=len(effects) == 1)
    facts.expect("each effect is found outside once", holds=set(times.values()) == {1})
    states = {e["state"] for e in effects}
    facts.expect("each effect succeeded", holds=states == {"succeeded"})


def times_published(folder: Path, key: str) -> int:
    """Count the publications that carry an effect's key, by reading their manifests."""
    count = 0
    for manifest in folder.glob("*/manifest.json"):
        with suppress(OSError, ValueError):
            count += json.loads(manifest.read_text())["key"] == key
    return count


def _where(effect: Json) -> str:
    answer = effect.get("response") or {}
    return str(answer.get("target") or effect["target"])
