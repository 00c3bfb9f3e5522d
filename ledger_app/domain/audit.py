"""The audit chain as arithmetic: names of streams, the envelope, the hashes.

The SQL function `ledger_audit_append` computes the same on the server; verification recomputes it
here. A verifier without a database needs this module and nothing else (security contract S101-S104).
"""

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from ledger_app.domain.canonical import MAX_INTEGER

VERSION = 1
SYSTEM_STREAM = "system"
# Platform events belong to no tenant; the column is NOT NULL all the same.
SYSTEM_TENANT = UUID(int=0)
# Replaced on the server by the time at which the head of the stream was locked.
NOW_MARK = "@now@"
NO_DETAILS_DIGEST = hashlib.sha256(b"").digest()

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_STREAM = re.compile(f"system|(?:task|tenant):{_UUID}")
_ACTOR = re.compile(f"user:[0-9]+|agent:{_UUID}|system:[a-z0-9_.-]+")


def task_stream(task_id: UUID) -> str:
    """Return the name of the stream of one task."""
    return f"task:{task_id}"


def tenant_stream(tenant_id: UUID) -> str:
    """Return the name of the stream of one tenant."""
    return f"tenant:{tenant_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Who did what to what: ids only, since this part is never erased.

    Attributes:
        actor: `user:<id>`, `agent:<uuid>` or `system:<name>`.
        via: the door it came through (rest, mcp, admin, session, …), or empty.
        target: what it was done to, such as `task:<uuid>` or `effect:<key>`.
    """

    stream: str
    tenant_id: UUID
    actor: str
    action: str
    target: str
    outcome: str = "ok"
    via: str = ""
    on_behalf_of: str | None = None
    old_version: int | None = None
    new_version: int | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        if not _STREAM.fullmatch(self.stream):
            raise ValueError(f"{self.stream!r} is no stream: task:<uuid>, tenant:<uuid> or system")
        if self.stream.startswith("tenant:") and self.stream != tenant_stream(self.tenant_id):
            raise ValueError(f"stream {self.stream} is not of tenant {self.tenant_id}")
        for who in filter(None, (self.actor, self.on_behalf_of)):
            if not _ACTOR.fullmatch(who):
                raise ValueError(f"{who!r} is no actor: user:<id>, agent:<uuid> or system:<name>")
        if not self.actor or not self.action:
            raise ValueError("an entry names its actor and its action")
        for version in filter(None, (self.old_version, self.new_version)):
            if abs(version) > MAX_INTEGER:
                raise ValueError(f"version {version} is beyond ±(2^53-1)")

    def text(self) -> str:
        """Return the RFC 8785 text with the place for the time still open.

        On the hot path of every audited act: with ASCII keys in order and no fractions,
        `json.dumps` writes the canonical form, five times faster. A test holds it to that.
        """
        return json.dumps(self.members(), ensure_ascii=False, separators=(",", ":"))

    def members(self) -> dict[str, str | int | None]:
        """Return the members of the envelope in canonical order."""
        return {
            "action": self.action,
            "actor": self.actor,
            "at": NOW_MARK,
            "new_version": self.new_version,
            "old_version": self.old_version,
            "on_behalf_of": self.on_behalf_of,
            "outcome": self.outcome,
            "request_id": self.request_id,
            "stream": self.stream,
            "target": self.target,
            "tenant": str(self.tenant_id),
            "v": VERSION,
            "via": self.via,
        }


def genesis_hash(stream: str) -> bytes:
    """Return what the first entry of a stream links to."""
    return _sha256(b"audit-genesis-v1" + stream.encode())


def details_digest(details: str | None, salt: bytes | None) -> bytes:
    """Return the salted digest of details text; without details it is a constant."""
    return _sha256((salt or b"") + (details or "").encode())


def entry_hash(stream: str, seq: int, prev_hash: bytes, envelope: str, digest: bytes) -> bytes:
    """Return the hash of one entry, which covers its place, its content and all before it."""
    return _sha256(
        b"audit-entry-v1"
        + _sha256(stream.encode())
        + seq.to_bytes(8, "big")
        + prev_hash
        + _sha256(envelope.encode())
        + digest
    )


def timestamp(at: datetime) -> str:
    """Return a time as the envelope spells it: UTC with six digits of the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
