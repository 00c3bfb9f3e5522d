"""Errors of the ledger with stable codes; they know neither HTTP nor Django."""


class LedgerError(Exception):
    """A refusal of the ledger.

    Attributes:
        code: stable, snake_case; documented in docs/reference/errors.md.
        retryable: whether the same call may succeed later without a change.
        fields: typed facts of this kind.
    """

    code = "ledger_error"
    retryable = False

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields


class NotCanonicalError(LedgerError):
    """The value has no canonical JSON form, so it cannot be hashed or stored."""

    code = "not_canonical"

    def __init__(self, message: str, *, pointer: str = "") -> None:
        super().__init__(f"{message} at {pointer or 'the top level'}", pointer=pointer)
        self.pointer = pointer


class StaleFenceError(LedgerError):
    """A newer fence wrote this effect; the caller has lost the task and must stop."""

    code = "stale_fence"

    def __init__(self, key: str, *, fence: int, stored_fence: int) -> None:
        super().__init__(
            f"effect {key} belongs to fence {stored_fence}, not {fence}",
            key=key,
            fence=fence,
            stored_fence=stored_fence,
        )


class EffectNotFoundError(LedgerError):
    """No effect has this key in this tenant."""

    code = "effect_not_found"


class EffectKeyReusedError(LedgerError):
    """The same effect key came with another act: other tool, target, kind, task or arguments."""

    code = "effect_key_reused"


class EffectInDoubtError(LedgerError):
    """The call may have happened; it is not made again before somebody has settled it."""

    code = "effect_in_doubt"


class EffectEdgeError(LedgerError):
    """The effect cannot move from its state to the wanted one."""

    code = "effect_edge_refused"
