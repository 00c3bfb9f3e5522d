"""States and kinds of an effect, and the only list of allowed edges.

The CHECK constraints, the database trigger, the explanation page and the tests are made from this
table.
"""

from enum import StrEnum


class EffectKind(StrEnum):
    """What a crash between the call and its result means for the other side."""

    KEYED = "keyed"  # the other side knows the effect key: calling again is harmless
    QUERYABLE = "queryable"  # the other side can be asked whether it happened
    OPAQUE = "opaque"  # nobody can tell: never called again without a person's decision


class EffectState(StrEnum):
    """Where one act on the outside world stands."""

    PLANNED = "planned"
    BEGUN = "begun"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    COMPENSATED = "compensated"


_S = EffectState

EDGES: dict[EffectState, frozenset[EffectState]] = {
    _S.PLANNED: frozenset({_S.BEGUN, _S.FAILED}),
    _S.BEGUN: frozenset({_S.SUCCEEDED, _S.FAILED, _S.IN_DOUBT}),
    # A failure says that nothing happened outside, so the same key may be tried again.
    _S.FAILED: frozenset({_S.BEGUN}),
    # A person or a query of the other side settles it, or orders the same call again.
    _S.IN_DOUBT: frozenset({_S.SUCCEEDED, _S.FAILED, _S.BEGUN}),
    _S.SUCCEEDED: frozenset({_S.COMPENSATED}),
    _S.COMPENSATED: frozenset(),
}

# States in which nothing outside is open; the others need an eye before a task may end.
SETTLED = frozenset({_S.SUCCEEDED, _S.FAILED, _S.COMPENSATED})

# States that say the act has happened.
DONE = frozenset({_S.SUCCEEDED, _S.COMPENSATED})


def is_allowed(source: EffectState, target: EffectState) -> bool:
    """Tell whether an effect may move from one state to the other; staying is always allowed."""
    return source == target or target in EDGES[source]


def sources_of(target: EffectState) -> tuple[EffectState, ...]:
    """Return the states from which an effect may move to the given one, in the table's order."""
    return tuple(source for source, targets in EDGES.items() if target in targets)
