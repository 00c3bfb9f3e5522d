"""The table of security section 2, cell by cell, and `require`."""

import uuid
from types import SimpleNamespace

import pytest

from tasks_app.domain.errors import NotAllowedError, NotFoundError, TenantSuspendedError
from tasks_app.domain.principal import Principal, PrincipalKind
from tasks_app.models.access import ROLES
from tasks_app.policy.capabilities import (
    CAPABILITIES,
    FORBIDDEN_TO_AGENTS,
    TABLE,
    allows,
    capabilities_of,
    require,
)

_ = "-"
# As in the contract: viewer, submitter, operator, approver, admin, auditor.
CONTRACT = {
    "tasks:read": ("all", "own", "all", "all", "all", "all"),
    "artifacts:read": ("all", "own", "all", "all", "all", "all"),
    "tasks:create": (_, "all", _, _, _, _),
    "tasks:steer": (_, "own", "all", _, _, _),
    "tasks:cancel": (_, "own", "all", _, _, _),
    "approvals:read": (_, "own", "all", "all", _, "all"),
    "approvals:decide": (_, _, _, "all", _, _),
    "ledger:read": (_, "own", "all", "all", _, "all"),
    "ledger:resolve": (_, _, "all", _, _, _),
    "deadletters:manage": (_, _, "all", _, _, _),
    "agents:manage": (_, _, _, _, "all", _),
    "policy:manage": (_, _, _, _, "all", _),
    "budgets:manage": (_, _, _, _, "all", _),
    "keys:manage": ("own", "own", "own", "own", "all", _),
    "members:manage": (_, _, _, _, "all", _),
    "webhooks:manage": (_, _, _, _, "all", _),
    "audit:read": (_, _, _, _, "all", "all"),
    "audit:export": (_, _, _, _, _, "all"),
    "data:request_erasure": (_, _, _, _, "all", _),
    "data:confirm_erasure": (_, _, _, _, _, "all"),
}
TENANT = uuid.uuid4()


def principal(*roles: str, **overrides: object) -> Principal:
    capabilities, own_only = capabilities_of(roles)
    values: dict[str, object] = {
        "kind": PrincipalKind.USER,
        "tenant_id": TENANT,
        "user_id": 1,
        "via": "session",
        "capabilities": capabilities,
        "own_only": own_only,
        **overrides,
    }
    return Principal(**values)  # type: ignore[arg-type]


def task(initiator_id: int = 2, tenant_id: uuid.UUID = TENANT) -> SimpleNamespace:
    return SimpleNamespace(initiator_id=initiator_id, tenant_id=tenant_id)


def test_table_equals_the_contract() -> None:
    """Each cell of the table is what the contract says, and nothing stands beside it."""
    assert set(CONTRACT) == set(CAPABILITIES)
    assert set(TABLE) == set(ROLES)
    for capability, cells in CONTRACT.items():
        for role, wide in zip(ROLES, cells, strict=True):
            assert TABLE[role].get(capability, "-") == wide, (role, capability)


def test_roles_add_up_and_the_wider_reach_wins() -> None:
    """Viewer and submitter together see everything and steer their own."""
    held, own = capabilities_of(["viewer", "submitter"])
    assert "tasks:read" in held
    assert "tasks:read" not in own
    assert "tasks:steer" in own


def test_unknown_roles_give_nothing() -> None:
    """A role that the table does not know is no right."""
    assert capabilities_of(["root"]) == (frozenset(), frozenset())


def test_agents_never_hold_what_is_forbidden_to_them() -> None:
    """S7: whatever is stored, the function refuses."""
    assert {
        "approvals:decide",
        "keys:manage",
        "members:manage",
        "policy:manage",
        "budgets:manage",
        "audit:export",
    } < FORBIDDEN_TO_AGENTS
    agent = principal("approver", kind=PrincipalKind.AGENT)
    with pytest.raises(NotAllowedError):
        require(agent, "approvals:decide")


def test_require_answers_404_for_another_tenants_object() -> None:
    """Outside the tenant nothing exists."""
    with pytest.raises(NotFoundError):
        require(principal("operator"), "tasks:cancel", task(tenant_id=uuid.uuid4()))


def test_a5_submitter_does_not_see_another_submitters_task() -> None:
    """A5: 404, not 403."""
    with pytest.raises(NotFoundError):
        require(principal("submitter"), "tasks:cancel", task())
    require(principal("submitter"), "tasks:cancel", task(initiator_id=1))


@pytest.mark.parametrize(
    ("role", "capability"),
    [
        ("viewer", "tasks:steer"),
        ("operator", "approvals:decide"),
        ("auditor", "tasks:cancel"),
    ],
)
def test_a5_what_is_seen_but_not_allowed_is_403(role: str, capability: str) -> None:
    """A5: the refusal names the capability."""
    with pytest.raises(NotAllowedError) as refused:
        require(principal(role), capability, task())
    assert refused.value.capability == capability


def test_seeing_all_and_steering_own_is_403_on_others() -> None:
    """A task that is seen and not one's own is refused by name."""
    with pytest.raises(NotAllowedError):
        require(principal("viewer", "submitter"), "tasks:steer", task())


def test_a6_a_key_that_may_only_create_cannot_cancel() -> None:
    """A6: without sight of tasks the answer is the missing capability."""
    key = principal("submitter", capabilities=frozenset({"tasks:create"}), own_only=frozenset())
    with pytest.raises(NotAllowedError):
        require(key, "tasks:cancel", task(initiator_id=1))


def test_suspended_tenant_reads_and_writes_nothing() -> None:
    """S1: reads work, every change is refused."""
    member = principal("operator", suspended=True)
    require(member, "tasks:read", task())
    with pytest.raises(TenantSuspendedError):
        require(member, "tasks:cancel", task())


def test_allows_tells_what_require_would_do() -> None:
    """Buttons ask the same table."""
    assert allows(principal("operator"), "tasks:cancel", task())
    assert not allows(principal("viewer"), "tasks:cancel", task())


def test_unknown_capability_is_a_fault_of_our_own() -> None:
    """A misspelt name must not pass silently as refused."""
    with pytest.raises(ValueError, match="unknown capability"):
        require(principal("viewer"), "task:read")
