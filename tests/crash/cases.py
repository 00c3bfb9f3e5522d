"""The cases of exact kill points: every pass of every sync point, kind of effect and fault (E90)."""

from dataclasses import dataclass

KINDS = ("keyed", "queryable", "opaque")
FAULTS = ("killed", "zombie", "doubled")

# How often an undisturbed task of `script` passes each point; a test compares.
PASSES = {
    "claim.before": 1,
    "claim.after": 1,
    "step.before": 5,
    "step.before_commit": 5,
    "step.after_commit": 2,
    "effect.before": 2,
    "effect.after_begin": 2,
    "effect.after_call": 2,
    "effect.after": 2,
    "finish.before_receipt": 1,
    "finish.before_terminal": 1,
    "finish.after_terminal": 1,
}
# From the ledger's begin to the commit of the result: what happened in between nobody can say.
IN_DOUBT = {
    *(("effect.after_begin", n) for n in (1, 2)),
    *(("effect.after_call", n) for n in (1, 2)),
    *(("step.before", n) for n in (2, 4)),
    *(("step.before_commit", n) for n in (2, 4)),
}
# Here the task is nobody's any more, so nobody recovers it.
UNCLAIMED = {"claim.before", "finish.after_terminal"}
# Here the act was done; a kind that remembers or can be asked is not called again.
CALLED = {
    *(("effect.after_call", n) for n in (1, 2)),
    *(("step.before_commit", n) for n in (2, 4)),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the matrix."""

    point: str
    number: int
    kind: str
    fault: str

    @property
    def name(self) -> str:
        """Return the name under which a failure is reported."""
        return f"{self.point}-{self.number}-{self.kind}-{self.fault}"

    @property
    def stop(self) -> tuple[str, int]:
        """Return where the process is held."""
        return self.point, self.number

    @property
    def processes(self) -> int:
        """Return how many processes the case needs at one time."""
        return 2 if self.fault == "doubled" else 1

    @property
    def ends_in_doubt(self) -> bool:
        """Tell whether only a person can say what happened."""
        return self.kind == "opaque" and self.fault != "doubled" and self.stop in IN_DOUBT


CASES = [
    Case(point, number, kind, fault)
    for fault in FAULTS
    for kind in KINDS
    for point, passes in PASSES.items()
    for number in range(1, passes + 1)
]
