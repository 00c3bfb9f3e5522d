"""Which files of a folder are documents, in an order that never depends on the file system."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from .model import Document
from .problems import FolderError, outside

MAX_DOCUMENTS: Final = 20_000
MAX_ENTRIES: Final = 500_000
MAX_DEPTH: Final = 24
MAX_PATTERNS: Final = 200
MAX_PATTERN_CHARACTERS: Final = 300

DOCUMENT_SUFFIXES: Final = frozenset(
    [
        ".txt",
        ".text",
        ".md",
        ".markdown",
        ".mdown",
        ".rst",
        ".html",
        ".htm",
        ".xhtml",
        ".pdf",
        ".docx",
        ".doc",
        ".docm",
        ".rtf",
        ".odt",
        ".pages",
        ".wps",
        ".wpd",
    ]
)
_LEGAL_NAME = re.compile(
    r"(?:^|[._ -])(?:licen[cs]e|copying|copyright|notice|authors|contributors|patents|eula|terms"
    r"|legal|agreement|contract|readme)(?:$|[._ -])",
    re.IGNORECASE,
)
# What follows the last dot of a name like "gtk-3.0-common_copyright" is no suffix.
_NO_SUFFIX = re.compile(r"\.(?:[^.]*[_ -][^.]*|[0-9]+)")
_NEVER_TEXT: Final = frozenset(
    [
        ".gz",
        ".bz2",
        ".xz",
        ".zst",
        ".zip",
        ".tar",
        ".7z",
        ".png",
        ".jpg",
        ".jpeg",
        ".gif",
        ".svg",
        ".ico",
        ".py",
        ".pyc",
        ".so",
        ".c",
        ".h",
        ".js",
        ".css",
        ".json",
        ".yaml",
        ".yml",
        ".toml",
        ".xml",
        ".csv",
    ]
)

# Codes the walk itself gives to what nobody can read, with their words for the report.
UNREAD: Final = {
    "bad_name": "The name is not valid UTF-8, so neither it nor what it holds was read; rename it.",
    "folder_not_readable": "The folder may not be listed, so nothing in it was read.",
    "missing": "It was gone before it could be read.",
    "not_a_file": "This is a pipe, a socket or a device, not a file.",
    "permission_denied": "The file system does not say what this is; it may not be read.",
    "unreadable": "The file system reports an error for this entry.",
}


@dataclass(slots=True)
class Tally:
    """What the walk passed over, filled while it runs.

    Attributes:
        other_files: Files of kinds that are not documents.
        excluded: Documents left out by a pattern.
        too_deep: Folders below MAX_DEPTH.
        linked_folders: Links to folders, never followed.
        kinds: Suffixes of the documents found.
    """

    other_files: int = 0
    excluded: int = 0
    too_deep: int = 0
    linked_folders: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def resolve_folder(folder: str, roots: Sequence[Path]) -> Path:
    """Return the real path of a folder that may be read.

    Raises:
        FolderError: folder_not_absolute, folder_not_found, not_a_folder, folder_not_allowed,
            folder_not_readable.
    """
    if "\x00" in folder or not Path(folder).is_absolute():
        raise FolderError("folder_not_absolute", "Give the absolute path of a folder.")
    refusal = FolderError("folder_not_allowed", outside("read", roots, "RUNTIME_INPUT_ROOTS"))
    lexical = Path(os.path.normpath(folder))
    real_roots = [root.resolve() for root in roots]
    try:
        real = Path(folder).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        if not any(lexical.is_relative_to(root) for root in [*roots, *real_roots]):
            raise refusal from error  # what exists elsewhere is nobody's business
        raise FolderError("folder_not_found", "There is no such folder.") from error
    if not any(real.is_relative_to(root) for root in real_roots):
        raise refusal
    if not real.is_dir():
        raise FolderError("not_a_folder", "This is a file, not a folder.")
    if not os.access(real, os.R_OK | os.X_OK):
        raise FolderError("folder_not_readable", "The folder may not be listed.")
    return real


def compile_exclusions(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Return one expression for all path globs, or None when there are none.

    ``*`` stays inside a folder name, ``**`` crosses folders, ``?`` is one character. A pattern
    without a slash matches any name on the path, so ``drafts`` leaves out a whole folder.

    Raises:
        FolderError: bad_pattern.
    """
    parts = []
    chosen = list(patterns)
    if len(chosen) > MAX_PATTERNS:
        raise FolderError("bad_pattern", f"More than {MAX_PATTERNS} patterns.")
    for pattern in chosen:
        text = pattern.strip().removeprefix("./").rstrip("/")
        if not text:
            continue
        if len(text) > MAX_PATTERN_CHARACTERS or text.count("*") > 12:
            raise FolderError("bad_pattern", "A pattern is too long or has too many stars.")
        prefix = "" if "/" in text else "(?:.*/)?"
        parts.append(f"{prefix}{_glob(text.removeprefix('/'))}(?:/.*)?")
    return re.compile("|".join(parts), re.DOTALL) if parts else None


def _glob(pattern: str) -> str:
    result = []
    for token in re.findall(r"\*\*/?|\*|\?|[^*?]+", pattern):
        match token:
            case "**/":
                result.append("(?:.*/)?")
            case "**":
                result.append(".*")
            case "*":
                result.append("[^/]*")
            case "?":
                result.append("[^/]")
            case _:
                result.append(re.escape(token))
    return "".join(result)


def is_document_name(name: str) -> bool:
    """Return whether a file of this name is read as a document."""
    suffix = Path(name).suffix.lower()
    if suffix in DOCUMENT_SUFFIXES:
        return True
    if suffix in _NEVER_TEXT:
        return False
    return not suffix or bool(_NO_SUFFIX.fullmatch(suffix) or _LEGAL_NAME.search(name))


def list_documents(
    folder: Path, exclude: Sequence[str] = (), tally: Tally | None = None
) -> Iterator[Document]:
    """Yield the documents below `folder`, sorted by path within each folder.

    Hidden files and folders are passed over, and links to folders are not followed. Links to
    files, and everything that may be a document but cannot be read (a closed folder, a pipe, a
    name that is no text), are listed, so that they show up in the report.

    Raises:
        FolderError: too_many_documents, too_many_entries, bad_pattern, folder_not_readable.
    """
    exclusions = compile_exclusions(exclude)
    counts = tally if tally is not None else Tally()
    found = 0
    for entry in _walk(folder, counts):
        if not (entry.always or is_document_name(entry.path.rpartition("/")[2])):
            counts.other_files += 1
        elif exclusions and exclusions.fullmatch(entry.path.rstrip("/")):
            counts.excluded += 1
        else:
            found += 1
            if found > MAX_DOCUMENTS:
                raise FolderError(
                    "too_many_documents", f"The folder holds more than {MAX_DOCUMENTS:,} documents."
                )
            counts.kinds[Path(entry.path).suffix.lower() or "none"] += 1
            yield Document(
                folder=str(folder),
                path=entry.path,
                size_bytes=entry.status.st_size if entry.status else 0,
                modified_at=_instant(entry.status.st_mtime_ns) if entry.status else "",
                problem=entry.problem,
            )


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the walk found; `always` when its name does not tell whether it is a document."""

    path: str
    status: os.stat_result | None = None
    problem: str = ""
    always: bool = False


def _walk(folder: Path, counts: Tally) -> Iterator[_Entry]:
    pending = [("", 0)]
    seen = 0
    while pending:
        prefix, depth = pending.pop()
        try:
            entries = _entries(folder / prefix)
        except OSError as error:
            yield _closed_folder(prefix, error)
            continue
        folders: list[str] = []
        for entry in entries:
            seen += 1
            if seen > MAX_ENTRIES:
                raise FolderError(
                    "too_many_entries", f"The folder holds more than {MAX_ENTRIES:,} entries."
                )
            if entry.name.startswith("."):
                continue
            if not _is_folder(entry):
                yield _file(prefix, entry)
            elif entry.is_symlink():
                counts.linked_folders += 1
            elif _is_text_name(entry.name):
                folders.append(f"{prefix}{entry.name}/")
            else:
                path = f"{prefix}{_shown(entry.name)}/"
                yield _Entry(path, problem="bad_name", always=True)
        if depth + 1 > MAX_DEPTH:
            counts.too_deep += len(folders)
        else:
            pending.extend((name, depth + 1) for name in reversed(folders))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as scan:
        return sorted(scan, key=lambda entry: entry.name)


def _closed_folder(prefix: str, error: OSError) -> _Entry:
    if not prefix:
        raise FolderError("folder_not_readable", "The folder may not be listed.") from error
    code = "folder_not_readable" if isinstance(error, PermissionError) else _code_of(error)
    return _Entry(prefix, problem=code, always=True)


def _file(prefix: str, entry: os.DirEntry[str]) -> _Entry:
    path = f"{prefix}{_shown(entry.name)}"
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError as error:
        return _Entry(path, problem=_code_of(error), always=not _is_regular(entry))
    if stat.S_ISLNK(status.st_mode):
        status = _target_status(entry, status)
    elif not stat.S_ISREG(status.st_mode):
        return _Entry(path, status, "not_a_file", always=True)
    return _Entry(path, status, "" if _is_text_name(entry.name) else "bad_name")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that goes round in circles, or an entry nobody may look at


def _is_regular(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False


def _code_of(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "missing"
    return "permission_denied" if isinstance(error, PermissionError) else "unreadable"


def _target_status(entry: os.DirEntry[str], own: os.stat_result) -> os.stat_result:
    try:
        return entry.stat()
    except OSError:
        return own


def _is_text_name(name: str) -> bool:
    """Names that are not valid text cannot be stored in JSON."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    r"""Return a name as it is, or with escapes like ``\xe9`` when it is not valid text."""
    if _is_text_name(name):
        return name
    return os.fsencode(name.replace("\\", r"\\")).decode("utf-8", "backslashreplace")


def _instant(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
