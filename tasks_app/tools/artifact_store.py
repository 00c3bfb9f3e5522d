"""Bytes of artifacts and of results too large for a row, addressed by tenant and SHA-256.

Content is written beside its place, made durable, then renamed; so a reader finds all of it or
nothing, and storing the same content twice costs nothing.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from tasks_app import conf

_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Where stored bytes are found again."""

    sha256: str
    size_bytes: int


def put_blob(tenant_id: UUID, data: bytes | Path) -> StoredBlob:
    """Store bytes or a file's content; streaming, so a large file costs no memory."""
    if isinstance(data, bytes):
        return put_blocks(tenant_id, (data,))
    with data.open("rb") as source:
        return put_blocks(tenant_id, iter(lambda: source.read(_BLOCK_BYTES), b""))


def put_blocks(tenant_id: UUID, blocks: Iterable[bytes]) -> StoredBlob:
    """Store the concatenation of blocks."""
    folder = _tenant_folder(tenant_id)
    folder.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as out:
            for block in blocks:
                digest.update(block)
                size += len(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        place = _place(tenant_id, digest.hexdigest())
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return StoredBlob(digest.hexdigest(), size)


def open_blob(tenant_id: UUID, sha256: str) -> BinaryIO:
    """Open stored bytes for reading; the caller closes.

    Raises:
        FileNotFoundError: nothing is stored under this digest for the tenant.
    """
    return _place(tenant_id, sha256).open("rb")


def read_blob(tenant_id: UUID, sha256: str) -> bytes:
    """Return stored bytes after checking them against their address.

    Raises:
        FileNotFoundError: nothing is stored under this digest.
        ValueError: the bytes are not the ones that were stored.
    """
    data = _place(tenant_id, sha256).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError(f"artifact {sha256} was changed on disk")
    return data


def is_intact(tenant_id: UUID, sha256: str) -> bool:
    """Tell whether the stored bytes are there and are the ones that were stored."""
    digest = hashlib.sha256()
    try:
        with open_blob(tenant_id, sha256) as source:
            for block in iter(lambda: source.read(_BLOCK_BYTES), b""):
                digest.update(block)
    except FileNotFoundError:
        return False
    return digest.hexdigest() == sha256


def _tenant_folder(tenant_id: UUID) -> Path:
    return conf.runtime().artifact_root / "tenant" / str(tenant_id)


def _place(tenant_id: UUID, sha256: str) -> Path:
    if len(sha256) != 64 or not all(c in "0123456789abcdef" for c in sha256):
        raise FileNotFoundError(sha256)
    return _tenant_folder(tenant_id) / sha256[:2] / sha256
