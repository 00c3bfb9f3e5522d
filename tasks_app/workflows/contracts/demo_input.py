"""The demo's input: the licence, notice and metadata texts of the Python packages installed here.

They are real legal documents, they are on every machine that can run the demo, and copying them
twice gives the same folder.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_FILE_BYTES: Final = 2 * 1024 * 1024

_LEGAL_NAME = re.compile(
    r"(?:licen[cs]e|copying|copyright|notice|authors|contributors|patents|third[-_ ]?party|eula)",
    re.IGNORECASE,
)
_CODE_SUFFIXES = frozenset(
    {".py", ".pyc", ".pyi", ".so", ".json", ".c", ".h", ".js", ".css", ".svg"}
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


def collect_installed_licences(target: Path) -> int:
    """Copy the legal texts of every installed distribution into `target`.

    Each distribution gets a folder ``name-version`` with its texts and the header of its metadata,
    which states the licence. What is already there is written again only when it differs, so that
    unchanged files keep their times.

    Args:
        target: Folder to fill; created when it is missing.

    Returns:
        The number of files in the folder's collection.
    """
    count = 0
    for name, content in sorted(_texts()):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (path.is_file() and path.read_bytes() == content):
            path.write_bytes(content)
        count += 1
    return count


def _texts() -> Iterator[tuple[str, bytes]]:
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if not name:
            continue
        folder = _safe(f"{name.lower().replace('_', '-')}-{distribution.version}")
        if folder in seen:
            continue
        seen.add(folder)
        header = (distribution.read_text("METADATA") or "").split("\n\n", 1)[0]
        if header:
            yield f"{folder}/METADATA.txt", header.encode("utf-8", "replace") + b"\n"
        yield from _files(distribution, folder)


def _files(
    distribution: importlib.metadata.Distribution, folder: str
) -> Iterator[tuple[str, bytes]]:
    names: set[str] = set()
    for entry in sorted(distribution.files or [], key=str):
        in_licences = ".dist-info/licenses/" in str(entry)
        legal = in_licences or _LEGAL_NAME.match(entry.name)
        if not legal or entry.suffix.lower() in _CODE_SUFFIXES:
            continue
        path = Path(str(distribution.locate_file(entry)))
        try:
            if not path.is_file() or not 0 < path.stat().st_size <= MAX_FILE_BYTES:
                continue
            content = path.read_bytes()
        except OSError:
            continue
        name = _unused(_safe(_short_name(str(entry))), names)
        names.add(name)
        yield f"{folder}/{name}", content


def _short_name(entry: str) -> str:
    """Return what is left of the path inside the distribution, as one readable name."""
    inside = re.sub(r"^.*\.dist-info/(?:licenses/)?", "", entry)
    return inside.replace("/", "--")


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name).strip(".")[:150] or "unnamed"


def _unused(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{number}--{name}"
    return candidate
