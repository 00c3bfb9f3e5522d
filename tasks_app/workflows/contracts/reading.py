"""From a file on disk to text with headings, or a `DocumentError` that says why not.

Here: limits, safe opening, and the choice of format. The formats themselves are in `formats`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .formats import read_docx, read_html, read_markdown, read_plain
from .pdf import read_pdf
from .problems import DocumentError
from .text import DocumentText

MAX_FILE_BYTES = 20 * 1024 * 1024
MAX_CHARACTERS = 2_000_000

_MARKDOWN = frozenset({".md", ".markdown", ".mdown"})
_HTML = frozenset({".html", ".htm", ".xhtml"})
_UNSUPPORTED = frozenset(
    {".doc", ".docm", ".rtf", ".odt", ".pages", ".wps", ".wpd", ".tif", ".tiff"}
)
_OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def read_document(folder: Path, relative: str) -> DocumentText:
    """Return the text of one file inside `folder`.

    Raises:
        DocumentError: for every file that cannot be read; no other exception leaves.
    """
    data = read_bytes(folder, relative)
    return read_content(data, Path(relative).name)


def read_bytes(folder: Path, relative: str) -> bytes:
    """Return the bytes of a regular file that really lies inside `folder`.

    A pipe or device never blocks, a link that leads out is refused, and what is opened is what
    was checked (the checks are repeated on the open file).

    Raises:
        DocumentError: symlink_outside, missing, permission_denied, not_a_file, too_large, empty.
    """
    target = _resolve_inside(folder, relative)
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise DocumentError("missing", "The file is no longer there.") from error
    except PermissionError as error:
        raise DocumentError("permission_denied", "The file may not be read.") from error
    except OSError as error:
        raise DocumentError(
            "unreadable", f"The file cannot be opened: {error.strerror}."
        ) from error
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise DocumentError("not_a_file", "This is not a regular file.")
        if status.st_size > MAX_FILE_BYTES:
            raise _too_large(status.st_size)
        try:
            data = stream.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise DocumentError("unreadable", f"Reading failed: {error.strerror}.") from error
    if len(data) > MAX_FILE_BYTES:
        raise _too_large(len(data))
    if not data:
        raise DocumentError("empty", "The file is empty.")
    return data


def _resolve_inside(folder: Path, relative: str) -> Path:
    try:
        root = folder.resolve(strict=True)
        target = (root / relative).resolve(strict=True)
    except FileNotFoundError as error:
        raise DocumentError("missing", "The file is no longer there.") from error
    except PermissionError as error:
        raise DocumentError("permission_denied", "The file may not be read.") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise DocumentError("unreadable", "The path of the file cannot be followed.") from error
    if not target.is_relative_to(root):
        raise DocumentError("symlink_outside", "The file is a link that leads out of the folder.")
    return target


def read_content(data: bytes, name: str) -> DocumentText:
    """Return the text of a document given as bytes; `name` helps to choose the format.

    Raises:
        DocumentError: for every content that cannot be read.
    """
    if len(data) > MAX_FILE_BYTES:
        raise _too_large(len(data))
    document = _by_format(data, name)
    if len(document.text) > MAX_CHARACTERS:
        raise DocumentError(
            "too_long",
            f"The text has {len(document.text):,} characters; the limit is {MAX_CHARACTERS:,}.",
        )
    if not any(character.isalnum() for character in document.text):
        if document.format == "pdf":
            raise DocumentError("no_text", "The PDF holds no text; it is probably a scan.")
        raise DocumentError("empty", "The file holds no text.")
    return document


def _by_format(data: bytes, name: str) -> DocumentText:
    suffix = Path(name).suffix.lower()
    if suffix == ".pdf" or b"%PDF-" in data[:1024]:
        return read_pdf(data)
    if suffix == ".docx" or data.startswith(b"PK\x03\x04"):
        return _word(data, suffix)
    if suffix in _UNSUPPORTED or data.startswith((_OLE_MAGIC, b"{\\rtf")):
        raise DocumentError(
            "unsupported_format", f"{suffix or 'Such'} files cannot be read; save as docx or PDF."
        )
    if suffix in _HTML:
        return read_html(data, max_characters=MAX_CHARACTERS)
    if suffix in _MARKDOWN:
        return read_markdown(data)
    return read_plain(data)


def _word(data: bytes, suffix: str) -> DocumentText:
    if data.startswith(_OLE_MAGIC):
        raise DocumentError(
            "encrypted", "The document is protected by a password or is an old .doc."
        )
    if suffix != ".docx":
        raise DocumentError("binary_content", "The file is an archive, not text.")
    return read_docx(data, max_characters=MAX_CHARACTERS)


def _too_large(size_bytes: int) -> DocumentError:
    return DocumentError(
        "too_large",
        f"The file has {size_bytes / 1_048_576:.1f} MiB; the limit is "
        f"{MAX_FILE_BYTES // 1_048_576} MiB.",
    )
