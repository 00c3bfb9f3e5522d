"""Where an author's code failed: for whoever mends tasks or started them, not for every reader."""

from collections.abc import Mapping
from typing import Any

from tasks_app.domain.principal import Principal

_TRACE = "trace"


def shown(principal: Principal, facts: Any) -> Any:
    """Return what is told of an error, without its traceback unless the reader may see that.

    A traceback names files of the server. Who repairs held tasks reads it, and who sees no tasks
    but those they started.
    """
    if not isinstance(facts, Mapping):
        return facts
    if principal.can("deadletters:manage") or principal.sees_only_own("tasks:read"):
        return facts
    return {
        name: shown(principal, fact) if isinstance(fact, Mapping) else fact
        for name, fact in facts.items()
        if name != _TRACE
    }
