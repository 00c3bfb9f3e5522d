"""Publication of a finished report, once for each key: into a folder or to an HTTP endpoint.

A second call with the same key finds the first publication and changes nothing. The folder becomes
visible in one rename; the endpoint gets the key as ``Idempotency-Key`` and must honour it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

import httpx

from .model import Publication
from .problems import PublicationError, outside

MAX_BYTES: Final = 200 * 1024 * 1024
MAX_ANSWER_BYTES: Final = 64 * 1024
MANIFEST: Final = "manifest.json"
_TIMEOUT = httpx.Timeout(30, connect=10)
_COPY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One file to publish; `open` returns a new stream of its bytes."""

    name: str
    sha256: str
    size_bytes: int
    media_type: str
    open: Callable[[], BinaryIO]


def is_address(target: str) -> bool:
    """Return whether `target` is an HTTP address rather than a folder."""
    return target.lower().startswith(("http://", "https://"))


def check_target(target: str, roots: Sequence[Path], hosts: Sequence[str]) -> None:
    """Refuse a target that is not allowed; nothing is created and nothing is sent.

    Raises:
        PublicationError: target_not_allowed, host_not_allowed, bad_address, target_not_absolute.
    """
    if is_address(target):
        _check_address(target, hosts)
    else:
        _resolve_target(target, roots)


def publish(
    target: str, key: str, files: Sequence[PublishedFile], *, name: str,
    roots: Sequence[Path], hosts: Sequence[str],
) -> Publication:  # fmt: skip
    """Publish `files` at `target` under `key`; repeating it with the same key changes nothing.

    Raises:
        PublicationError: it was not done; `retryable` tells whether trying again may help.
    """
    if sum(item.size_bytes for item in files) > MAX_BYTES:
        raise PublicationError("too_large", f"The report has more than {MAX_BYTES >> 20} MiB.")
    if len({item.name for item in files}) != len(files) or any(
        "/" in item.name or item.name.startswith(".") or item.name == MANIFEST for item in files
    ):
        raise PublicationError("bad_name", "A file of the report has a name that is not allowed.")
    if is_address(target):
        return _publish_http(target, key, files, name=name, hosts=hosts)
    return _publish_folder(_resolve_target(target, roots), key, files, name=name)


def manifest_of(key: str, files: Sequence[PublishedFile]) -> dict[str, Any]:
    """Return what the manifest says; equal for equal keys and files."""
    return {
        "key": key,
        "files": [
            {"name": item.name, "sha256": item.sha256, "sizeBytes": item.size_bytes,
             "mediaType": item.media_type}
            for item in sorted(files, key=lambda item: item.name)
        ],
    }  # fmt: skip


def _publish_folder(
    target: Path, key: str, files: Sequence[PublishedFile], *, name: str
) -> Publication:
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    final = target / f"{name}-{digest}"
    if (final / MANIFEST).is_file():
        return _existing(final, key, files)
    try:
        target.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{name}-{digest}.", dir=target))
    except OSError as error:
        raise PublicationError(
            "target_not_writable",
            f"The folder cannot be written: {error.strerror}.",
            retryable=True,
        ) from error
    try:
        _fill(scratch, key, files)
        scratch.chmod(0o755)
        os.rename(scratch, final)
        _sync_folder(target)
    except OSError as error:
        if (final / MANIFEST).is_file():
            return _existing(final, key, files)
        raise PublicationError(
            "not_written", f"Writing the publication failed: {error.strerror}.", retryable=True
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Publication(target=str(final), reference=final.name, kind="folder", replayed=False)


def _fill(folder: Path, key: str, files: Sequence[PublishedFile]) -> None:
    for item in files:
        digest = hashlib.sha256()
        with item.open() as source, (folder / item.name).open("xb") as out:
            while block := source.read(_COPY_BYTES):
                digest.update(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != item.sha256:
            raise PublicationError("digest_mismatch", f"{item.name} is not what was approved.")
    text = json.dumps(manifest_of(key, files), ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    with (folder / MANIFEST).open("x", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    _sync_folder(folder)


def _existing(final: Path, key: str, files: Sequence[PublishedFile]) -> Publication:
    try:
        found = json.loads((final / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise PublicationError(
            "publication_unreadable", f"{final.name} exists and cannot be checked."
        ) from error
    if found != manifest_of(key, files):
        raise PublicationError(
            "publication_differs", f"{final.name} exists with other content under the same key."
        )
    return Publication(target=str(final), reference=final.name, kind="folder", replayed=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _resolve_target(target: str, roots: Sequence[Path]) -> Path:
    if "\x00" in target or not Path(target).is_absolute():
        raise PublicationError(
            "target_not_absolute", "Give the absolute path of a folder, or an https address."
        )
    try:
        real = Path(target).resolve()
        allowed = any(real.is_relative_to(root.resolve()) for root in roots)
    except (OSError, RuntimeError) as error:
        raise PublicationError("target_not_allowed", "The path cannot be followed.") from error
    if not allowed:
        raise PublicationError(
            "target_not_allowed", outside("published to", roots, "RUNTIME_PUBLISH_ROOTS")
        )
    if real.exists() and not real.is_dir():
        raise PublicationError("target_not_a_folder", "This is a file, not a folder.")
    return real


def _check_address(address: str, hosts: Sequence[str]) -> None:
    try:
        parts = urlsplit(address)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError as error:
        raise PublicationError("bad_address", "This is not an address.") from error
    if not host or parts.username is not None or parts.password is not None or parts.fragment:
        raise PublicationError(
            "bad_address", "An address has a host and neither a password nor a fragment."
        )
    names = {host} if port is None else {host, f"{host}:{port}"}
    if not names & {name.lower() for name in hosts}:
        raise PublicationError("host_not_allowed", f"Publishing to {host} is not allowed.")
    if parts.scheme.lower() != "https" and not _is_loopback(host):
        raise PublicationError("bad_address", "Only https addresses are published to.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _publish_http(
    address: str, key: str, files: Sequence[PublishedFile], *, name: str, hosts: Sequence[str]
) -> Publication:
    _check_address(address, hosts)
    manifest = json.dumps(manifest_of(key, files), sort_keys=True).encode()
    streams = [item.open() for item in files]
    parts: list[tuple[str, tuple[str, bytes | BinaryIO, str]]] = [
        ("manifest", (MANIFEST, manifest, "application/json"))
    ]
    parts += [
        ("file", (item.name, stream, item.media_type))
        for item, stream in zip(files, streams, strict=True)
    ]
    headers = {
        "Idempotency-Key": key,
        "Accept": "application/json",
        "User-Agent": f"perdure/{name}",
    }
    try:
        with (
            httpx.Client(trust_env=False, follow_redirects=False, timeout=_TIMEOUT) as client,
            client.stream("POST", address, files=parts, headers=headers) as answer,
        ):
            body = _limited(answer)
            return _judge(address, key, answer, body)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise PublicationError(
            "not_reached",
            f"The endpoint could not be reached: {type(error).__name__}.",
            retryable=True,
        ) from error
    finally:
        for stream in streams:
            stream.close()


def _judge(address: str, key: str, answer: httpx.Response, body: bytes) -> Publication:
    reference = answer.headers.get("location", "")[:500]
    if answer.is_success:
        replayed = answer.headers.get("idempotency-replayed", "").lower() == "true"
        return Publication(target=address, reference=reference, kind="http", replayed=replayed)
    if answer.status_code == httpx.codes.CONFLICT and _names_key(answer, body, key):
        return Publication(target=address, reference=reference, kind="http", replayed=True)
    if answer.is_redirect:
        raise PublicationError(
            "redirected", "The endpoint answered with a redirect; none is followed."
        )
    retryable = answer.is_server_error or answer.status_code in {408, 425, 429}
    raise PublicationError(
        "refused", f"The endpoint answered {answer.status_code}.", retryable=retryable
    )


def _names_key(answer: httpx.Response, body: bytes, key: str) -> bool:
    if answer.headers.get("idempotency-key") == key:
        return True
    try:
        document = json.loads(body)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("idempotencyKey") == key


def _limited(answer: httpx.Response) -> bytes:
    body = bytearray()
    for block in answer.iter_bytes(8192):
        body += block
        if len(body) > MAX_ANSWER_BYTES:
            raise PublicationError("answer_too_large", "The endpoint's answer is too long.")
    return bytes(body)
