"""Run as a program by `pdf`: PDF on stdin, one JSON document on stdout. Not imported.

Answers ``{"pages": [...]}`` or ``{"error": code}``; the parent ends it when it takes too long.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
from io import BytesIO


def _limit(seconds: int, memory_bytes: int) -> None:
    for kind, value in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        try:
            resource.setrlimit(kind, (value, value))
        except (ValueError, OSError):
            continue  # not every system has every limit; the parent's clock always holds


def _extract(data: bytes, max_pages: int, max_characters: int) -> dict[str, object]:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, WrongPasswordError

    logging.disable(logging.CRITICAL)
    try:
        reader = PdfReader(BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            return {"error": "encrypted"}
        if len(reader.pages) > max_pages:
            return {"error": "too_many_pages"}
        pages: list[str] = []
        left = max_characters
        for page in reader.pages:
            text = page.extract_text() or ""
            pages.append(text)
            left -= len(text)
            if left < 0:
                break
    except (FileNotDecryptedError, WrongPasswordError, DependencyError):
        return {"error": "encrypted"}
    except (MemoryError, RecursionError):
        return {"error": "too_much_memory"}
    except Exception:  # noqa: BLE001 - a damaged PDF makes the parser raise anything
        return {"error": "damaged"}
    return {"pages": pages}


def main() -> None:
    """Read, extract, answer."""
    seconds, memory_bytes, max_pages, max_characters = map(int, sys.argv[1].split(","))
    _limit(seconds, memory_bytes)
    answer = _extract(sys.stdin.buffer.read(), max_pages, max_characters)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
