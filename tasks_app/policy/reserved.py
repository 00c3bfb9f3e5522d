"""Keys that only the server may state (security S34): one list for REST, MCP and admin.

Compared in any letter case and with `-`, `_` or nothing between the words, at any depth.
"""

from collections.abc import Collection, Iterator
from typing import Any

from tasks_app.domain.errors import FieldProblem, ReservedKeyError
from tasks_app.domain.json_text import escaped

RESERVED_KEYS = frozenset(
    {
        "tenant",
        "tenant_id",
        "user_id",
        "owner_id",
        "initiator",
        "initiator_id",
        "principal",
        "agent_id",
        "agent_version",
        "api_key_id",
        "is_internal",
        "is_staff",
        "is_superuser",
        "approved",
        "approved_by",
        "capabilities",
        "permissions",
        "grants",
        "tool_grants",
        "policy_version",
        "provenance",
        "state_version",
        "lease_owner",
        "fence",
        "run_id",
        "trace_id",
        "server_context",
    }
)

_PLAIN = frozenset(key.replace("_", "") for key in RESERVED_KEYS)


def is_reserved(key: str) -> bool:
    """Tell whether a key names a fact of the server."""
    return key.startswith("__") or key.lower().replace("_", "").replace("-", "") in _PLAIN


def refuse_reserved(value: object, *, asked_for: Collection[str] = ()) -> None:
    """Refuse a JSON value that names a fact of the server anywhere.

    Works without recursion, so that depth costs nothing.

    Args:
        asked_for: keys of the outermost object that a request means something else by.

    Raises:
        ReservedKeyError: with a pointer to each such key, at most 20 of them.
    """
    found = [
        FieldProblem(pointer, "reserved_key", "Only the server states this.")
        for pointer, _ in zip(_reserved_pointers(value), range(20), strict=False)
        if pointer.removeprefix("/") not in asked_for
    ]
    if found:
        raise ReservedKeyError("The request states a fact that only the server knows.", found)


def _reserved_pointers(value: object) -> Iterator[str]:
    pending: list[tuple[object, str]] = [(value, "")]
    while pending:
        item, pointer = pending.pop()
        if isinstance(item, dict):
            for key, child in item.items():
                place = f"{pointer}/{escaped(key)}"
                if is_reserved(key):
                    yield place
                pending.append((child, place))
        elif isinstance(item, list):
            pending.extend((child, f"{pointer}/{index}") for index, child in enumerate(item))


def without_reserved(value: Any) -> tuple[Any, int]:
    """Return a JSON value without the keys that name facts of the server, and how many there were.

    The value is as deep as the parser of JSON lets it be.
    """
    if isinstance(value, dict):
        found = {key: without_reserved(child) for key, child in value.items()}
        kept = {key: child for key, (child, _) in found.items() if not is_reserved(key)}
        dropped = sum(1 if is_reserved(key) else count for key, (_, count) in found.items())
        return kept, dropped
    if isinstance(value, list):
        parts = [without_reserved(child) for child in value]
        return [child for child, _ in parts], sum(count for _, count in parts)
    return value, 0
