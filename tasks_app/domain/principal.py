"""The acting identity as a value. Only `admission.principal` makes one (security S10)."""

from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID


class PrincipalKind(StrEnum):
    """Who acts."""

    USER = "user"
    AGENT = "agent"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who acts, for which tenant, with which capabilities, through what.

    `capabilities` is the result for this request only: scopes of a key ∩ what the owner's roles
    give now (S6). `own_only` names the capabilities that reach just the caller's own tasks.
    """

    kind: PrincipalKind
    tenant_id: UUID
    user_id: int | None
    via: str
    capabilities: frozenset[str]
    own_only: frozenset[str] = field(default_factory=frozenset)
    agent_id: UUID | None = None
    api_key_id: UUID | None = None
    display: str = ""
    # A suspended tenant's members may look and change nothing (S1).
    suspended: bool = False

    @property
    def actor(self) -> str:
        """Return the actor's name in audit entries: ids only."""
        match self.kind:
            case PrincipalKind.USER:
                return f"user:{self.user_id}"
            case PrincipalKind.AGENT:
                return f"agent:{self.agent_id}"
            case PrincipalKind.SYSTEM:
                return f"system:{self.display}"

    def can(self, capability: str) -> bool:
        """Tell whether the principal holds the capability for at least its own tasks."""
        return capability in self.capabilities

    def sees_only_own(self, capability: str) -> bool:
        """Tell whether the capability reaches only tasks that the caller started."""
        return capability in self.own_only
