"""The checkpoint document: state from which the work can be rebuilt, not process memory (M10).

Canonical JSON with a SHA-256; schema versions with functions from one to the next. Data only: no
pickles, no class paths, no conversations, no secrets (E50).
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from ledger_app.domain.canonical import canonical_text, sha256_hex
from tasks_app.domain.errors import CorruptCheckpointError

SCHEMA_VERSION = 2
MAX_BYTES = 65_536

# So many of the newest checkpoints of a task are kept, and besides them those with a name: written
# for something that people look back at (E53).
KEEP_NEWEST = 10
NAMED_REASONS = (
    "approval",
    "dead_letter",
    "end",
    "question",
    "rewind",
    "steering",
    "version_hold",
)


def _name_writer(document: dict[str, Any]) -> dict[str, Any]:
    """Version 2 tells which code wrote the document and which older one it continues."""
    return {**document, "schema_version": 2, "workflow": "", "continued_from": None}


# From version n to n + 1; golden files of every released version are in tests/compat.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _name_writer}


@dataclass(frozen=True, slots=True)
class CheckpointDocument:
    """What another worker needs to continue.

    Attributes:
        completed_steps: compressed, such as "load_manifest" or "classify[0..1239]"; long plans
            are given as position ranges "#0..#4199".
        variables: small facts of the cursor, such as the next item of the open map.
        artifacts: references with digests, newest first; side_effects: keys with states, newest
            last. Only the newest of each; the rows hold all of them.
        steering_cursor: number of the last applied command.
        workflow: "name@version" of the code that wrote it; empty before schema 2.
        continued_from: number of the older checkpoint that a person chose to go on from.
    """

    task_id: str
    checkpoint_seq: int
    plan_version: int
    next_step: str
    next_position: int
    completed_steps: list[str]
    variables: dict[str, Any]
    artifacts: list[dict[str, Any]]
    side_effects: list[dict[str, str]]
    steering_cursor: int
    fence: int
    created_at: str
    workflow: str
    continued_from: int | None = None
    schema_version: int = SCHEMA_VERSION

    def text(self) -> str:
        """Return the canonical form that is stored and hashed."""
        return canonical_text({name: getattr(self, name) for name in _NAMES})

    def fitted_text(self) -> str:
        """Return the stored form with as many of the newest references as MAX_BYTES leave room for.

        Raises:
            CorruptCheckpointError: it is too large without any, so data lies in the wrong place.
        """
        document = self
        while len((text := document.text()).encode()) > MAX_BYTES:
            if not document.artifacts and not document.side_effects:
                raise CorruptCheckpointError("The checkpoint would be larger than 64 KiB.")
            document = replace(
                document,
                artifacts=document.artifacts[: len(document.artifacts) // 2],
                side_effects=document.side_effects[(len(document.side_effects) + 1) // 2 :],
            )
        return text


_NAMES = tuple(field.name for field in fields(CheckpointDocument))


def digest(text: str) -> str:
    """Return the checksum of a stored document."""
    return sha256_hex(text.encode())


def parse(text: str, sha256: str) -> CheckpointDocument:
    """Return the document after checking its checksum and upgrading its schema.

    Raises:
        CorruptCheckpointError: the checksum differs, the text is no document, or its schema is
            unknown here; `found` and `expected` tell the checksums.
    """
    found = digest(text)
    if found != sha256:
        raise CorruptCheckpointError(
            "The checkpoint's checksum does not match.", expected=sha256, found=found
        )
    try:
        data = json.loads(text)
        version = int(data["schema_version"])
        while version < SCHEMA_VERSION:
            data = UPGRADES[version](data)
            version += 1
        if version > SCHEMA_VERSION:
            raise CorruptCheckpointError(
                f"The checkpoint's schema {version} is newer than this installation's.",
                schema_version=version,
            )
        return CheckpointDocument(**data)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptCheckpointError(f"The checkpoint is no document: {error}") from error


def compress(positions: Iterable[int]) -> list[str]:
    """Return sorted positions as ranges: 0,1,2,5 becomes #0..#2, #5.

    A range with step 1, such as a plan up to its cursor, costs the same at any length.
    """
    ranges: list[list[int]] = []
    if isinstance(positions, range) and positions.step == 1:
        ranges, positions = ([[positions[0], positions[-1]]] if positions else []), ()
    for position in sorted(positions):
        if ranges and ranges[-1][1] == position - 1:
            ranges[-1][1] = position
        else:
            ranges.append([position, position])
    return [f"#{a}" if a == b else f"#{a}..#{b}" for a, b in ranges]
