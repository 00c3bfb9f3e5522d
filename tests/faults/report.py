"""What a run showed: a table for people and JSON to keep."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.faults import judging
from tests.faults.judging import Verdict
from tests.faults.kinds import SHARES, Scene, facts_of
from tests.faults.run import SETTLE_SECONDS, Outcome

SHOWN_VIOLATIONS = 20


@dataclass(frozen=True)
class Report:
    """One run, its verdict and where it happened."""

    facts: dict[str, Any]
    scene: Scene
    outcome: Outcome
    verdict: Verdict

    @property
    def is_good(self) -> bool:
        """Tell whether every promise was kept and every fault that was asked for happened."""
        in_time = self.outcome.settled and self.outcome.settle_seconds <= SETTLE_SECONDS
        return self.verdict.is_good and in_time and not self.outcome.missed

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        verdict, outcome = self.verdict, self.outcome
        return {
            **self.facts,
            "good": self.is_good,
            "faults": dict(outcome.faults),
            "faults_missed": dict(outcome.missed),
            "fault_kinds": {name: facts_of(name) for name in SHARES},
            "answers": self.scene.answers,
            "fault_seconds": round(outcome.fault_seconds, 1),
            "settle_seconds": round(outcome.settle_seconds, 1),
            "settle_limit_seconds": SETTLE_SECONDS,
            "workers_ended_by_themselves": outcome.workers_ended,
            "tasks": verdict.tasks,
            "outcomes": dict(verdict.outcomes),
            "recoveries": verdict.recoveries,
            "lost": verdict.lost,
            "acts": verdict.acts,
            "duplicate_acts": verdict.duplicates,
            "audit_chains": verdict.chains,
            "audit_chains_verified": verdict.chains_verified,
            "oracles": judging.by_oracle(verdict),
            "violations": [str(violation) for violation in verdict.violations],
        }

    def write(self, file: Path) -> None:
        """Keep the report."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.as_json(), indent=2) + "\n")

    def show(self, console: Console) -> None:
        """Print the tables and the verdict."""
        given = sum(self.outcome.faults.values())
        console.print(_faults(self.outcome))
        console.print(_oracles(self.verdict))
        for name, number in sorted(self.verdict.outcomes.items()):
            console.print(f"  {number:>6} tasks {name}", highlight=False)
        for violation in self.verdict.violations[:SHOWN_VIOLATIONS]:
            console.print(f"✗ {violation}", highlight=False)
        verdict, outcome = self.verdict, self.outcome
        console.print(
            f"{given} faults in {outcome.fault_seconds:.0f} s on {verdict.tasks} tasks, "
            f"{verdict.recoveries} take-overs; settled {outcome.settle_seconds:.1f} s after the "
            f"last one ({SETTLE_SECONDS:.0f} s are allowed).\n"
            f"{len(verdict.lost)} lost. {verdict.duplicates} of {verdict.acts} acts happened twice "
            f"at the counting side. {verdict.chains_verified} of {verdict.chains} audit chains "
            f"verified.",
            highlight=False,
        )
        mark = "✓ Every promise was kept" if self.is_good else "✗ Not every promise was kept"
        console.print(f"[bold]{mark}[/] (seed {self.facts['seed']}).", highlight=False)


def _faults(outcome: Outcome) -> Table:
    table = Table("fault", "what", "times", title="Faults")
    for name in SHARES:
        times = str(outcome.faults[name])
        missed = outcome.missed[name]
        table.add_row(name, facts_of(name)["what"], times + (f" ({missed} missed)" * bool(missed)))
    return table


def _oracles(verdict: Verdict) -> Table:
    table = Table("oracle", "promise", "broken", title="Promises")
    for name, found in judging.by_oracle(verdict).items():
        table.add_row(name, found["promise"], str(found["violations"]))
    return table
