"""Trace context (W3C Trace Context, level 1): a task goes on with the trace of its request.

Nothing is recorded here. A task keeps which trace it belongs to, so that what it calls can be put
together with what called it, days later and from other processes.
"""

import re
import secrets
from dataclasses import dataclass
from hashlib import sha256

STATE_MAX = 512
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_VERSION_0_CHARS = 55


@dataclass(frozen=True, slots=True)
class Trace:
    """Which trace something belongs to: `traceparent` and `tracestate` as they travel."""

    parent: str
    state: str = ""

    @property
    def id(self) -> str:
        """Return the trace's id: 32 hexadecimal digits."""
        return trace_id_of(self.parent)


def received(parent: object, state: object = "") -> Trace | None:
    """Return the context that came with a request; what is not valid counts as none (section 4.3)."""
    if not isinstance(parent, str):
        return None
    found = _PARENT.match(parent)
    if found is None or (parent[:2] == "00" and len(parent) != _VERSION_0_CHARS):
        return None
    if not isinstance(state, str) or len(state) > STATE_MAX or not state.isprintable():
        state = ""
    return Trace(f"00{found[0][2:]}", state)


def of_task(given: Trace | None) -> Trace:
    """Return the context of a new task: a span of its own, in the given trace or in a new one."""
    span = secrets.token_hex(8)
    if given is None:
        return Trace(f"00-{secrets.token_hex(16)}-{span}-00")
    return Trace(f"00-{given.id}-{span}-{given.parent[-2:]}", given.state)


def span_of(parent: str, name: str) -> str:
    """Return the `traceparent` of one act within a task: the same at every try, empty without one."""
    if not parent:
        return ""
    span = sha256(f"{parent}:{name}".encode()).hexdigest()[:16]
    return f"00-{trace_id_of(parent)}-{span}-{parent[-2:]}"


def trace_id_of(parent: str) -> str:
    """Return the id in a `traceparent`, empty without one."""
    return parent[3:35]
