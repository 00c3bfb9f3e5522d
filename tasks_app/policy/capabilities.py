"""The one table of who may do what (security section 2), and the one function that asks it.

Every door calls `require`. Roles are additive; the wider reach wins. Nothing here reads a row: the
caller brings the principal and, for an act on something, the row itself.
"""

from collections.abc import Iterable
from uuid import UUID

from tasks_app.domain.errors import NotAllowedError, NotFoundError, TenantSuspendedError
from tasks_app.domain.principal import Principal, PrincipalKind

ALL = "all"
OWN = "own"

# Every capability with what it lets a person do.
CAPABILITIES: dict[str, str] = {
    "tasks:read": "See tasks, their steps, checkpoints, commands and history",
    "artifacts:read": "See and download what tasks produced",
    "tasks:create": "Start tasks",
    "tasks:steer": "Pause and resume tasks, change goal or priority, answer questions",
    "tasks:cancel": "Cancel tasks",
    "approvals:read": "See what waits for approval, and what was decided",
    "approvals:decide": "Approve or deny acts that somebody else asked for",
    "ledger:read": "See effects, receipts and usage",
    "ledger:resolve": "Settle an effect whose outcome is in doubt",
    "deadletters:manage": "Repair, requeue or close tasks that are held for a person",
    "agents:manage": "Manage agent identities",
    "policy:manage": "Publish policy versions",
    "budgets:manage": "Set budgets and limits",
    "keys:manage": "Make, rotate and revoke API keys",
    "members:manage": "Grant and remove roles",
    "webhooks:manage": "Manage webhooks",
    "audit:read": "Read the tenant's audit stream",
    "audit:export": "Export the audit record",
    "data:request_erasure": "Ask for the erasure of personal data",
    "data:confirm_erasure": "Confirm an erasure that somebody else asked for",
}

_SEES_ALL = {"tasks:read": ALL, "artifacts:read": ALL}
_OWN_KEYS = {"keys:manage": OWN}
_SEES_LEDGER = {"approvals:read": ALL, "ledger:read": ALL}

# role → capability → reach. `approvals:decide` reaches all but what one asked for oneself; that
# exception needs the decision's history and is made in admission.approvals (S59).
TABLE: dict[str, dict[str, str]] = {
    "viewer": {**_SEES_ALL, **_OWN_KEYS},
    "submitter": {
        "tasks:read": OWN,
        "artifacts:read": OWN,
        "tasks:create": ALL,
        "tasks:steer": OWN,
        "tasks:cancel": OWN,
        "approvals:read": OWN,
        "ledger:read": OWN,
        **_OWN_KEYS,
    },
    "operator": {
        **_SEES_ALL,
        **_SEES_LEDGER,
        **_OWN_KEYS,
        "tasks:steer": ALL,
        "tasks:cancel": ALL,
        "ledger:resolve": ALL,
        "deadletters:manage": ALL,
    },
    "approver": {**_SEES_ALL, **_SEES_LEDGER, **_OWN_KEYS, "approvals:decide": ALL},
    "admin": {
        **_SEES_ALL,
        "agents:manage": ALL,
        "policy:manage": ALL,
        "budgets:manage": ALL,
        "keys:manage": ALL,
        "members:manage": ALL,
        "webhooks:manage": ALL,
        "audit:read": ALL,
        "data:request_erasure": ALL,
    },
    "auditor": {
        **_SEES_ALL,
        **_SEES_LEDGER,
        "audit:read": ALL,
        "audit:export": ALL,
        "data:confirm_erasure": ALL,
    },
}

# No agent holds these, whatever is stored (S7).
FORBIDDEN_TO_AGENTS = frozenset(
    name
    for name in CAPABILITIES
    if name in {"approvals:decide", "audit:export"}
    or name.partition(":")[0] in {"keys", "members", "policy", "budgets", "data"}
)

# What the runtime's own processes may do by themselves: look.
SYSTEM_CAPABILITIES = frozenset({"tasks:read", "artifacts:read", "approvals:read", "ledger:read"})

# Capabilities that change nothing: all that a suspended tenant keeps (S1).
READING = frozenset(name for name in CAPABILITIES if name.endswith((":read", ":export")))

# What one must be able to see before one is told that an act on it is not allowed (S0: 403 for
# what is seen, 404 for what is not).
_SIGHT = {
    "artifacts": "artifacts:read",
    "approvals": "approvals:read",
    "ledger": "ledger:read",
    "keys": "keys:manage",
    "members": "members:manage",
    "webhooks": "webhooks:manage",
}


def capabilities_of(roles: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return what the roles give together, and which of it reaches only one's own tasks.

    Unknown roles give nothing.
    """
    reach: dict[str, str] = {}
    for role in roles:
        for capability, wide in TABLE.get(role, {}).items():
            if reach.get(capability) != ALL:
                reach[capability] = wide
    own = frozenset(name for name, wide in reach.items() if wide == OWN)
    return frozenset(reach), own


def agent_capabilities(capabilities: Iterable[str]) -> frozenset[str]:
    """Return what is left of a set of capabilities when an agent uses it (S7)."""
    return frozenset(capabilities) - FORBIDDEN_TO_AGENTS


def sight_of(capability: str) -> str:
    """Return the capability that shows what the given one acts on."""
    return _SIGHT.get(capability.partition(":")[0], "tasks:read")


def require(principal: Principal, capability: str, obj: object = None) -> None:
    """Refuse unless the principal holds the capability, for this object if one is given.

    `obj` is a row or dataclass of the tenant: a task, something of a task, a key.

    Raises:
        NotFoundError: the object belongs to another tenant, or lies outside what the caller sees.
        NotAllowedError: it is seen, but the capability is missing or reaches only own tasks.
        TenantSuspendedError: the tenant is suspended and the capability changes something.
    """
    if capability not in CAPABILITIES:
        raise ValueError(f"unknown capability {capability}")
    if obj is not None and principal.can(sight_of(capability)):
        _require_sight(principal, sight_of(capability), obj)
    if not holds(principal, capability):
        raise NotAllowedError(capability)
    if principal.suspended and capability not in READING:
        raise TenantSuspendedError("The tenant is suspended: reading works, changes do not.")
    if obj is not None and not _reaches(principal, capability, obj):
        raise NotAllowedError(capability)


def holds(principal: Principal, capability: str) -> bool:
    """Tell whether the principal has the capability at all; agents never have what S7 lists."""
    if principal.kind is PrincipalKind.AGENT and capability in FORBIDDEN_TO_AGENTS:
        return False
    return principal.can(capability)


def allows(principal: Principal, capability: str, obj: object = None) -> bool:
    """Tell whether `require` would pass: for buttons; the act asks again."""
    try:
        require(principal, capability, obj)
    except (NotAllowedError, NotFoundError, TenantSuspendedError):
        return False
    return True


def _require_sight(principal: Principal, sight: str, obj: object) -> None:
    if not _reaches(principal, sight, obj):
        raise NotFoundError("Not found.")


def _reaches(principal: Principal, capability: str, obj: object) -> bool:
    if tenant_of(obj) != principal.tenant_id:
        return False
    return not principal.sees_only_own(capability) or owner_of(obj) == principal.user_id


def tenant_of(obj: object) -> UUID | None:
    """Return the tenant that a row or dataclass belongs to."""
    return getattr(obj, "tenant_id", None)


def owner_of(obj: object) -> int | None:
    """Return the person whose "own" the object is: who started the task, who owns the key."""
    for name in ("initiator_id", "owner_user_id", "owner_id"):
        if hasattr(obj, name):
            return getattr(obj, name)  # type: ignore[no-any-return]
    for parent in ("task", "approval"):
        if hasattr(obj, parent):
            return owner_of(getattr(obj, parent))
    return None
