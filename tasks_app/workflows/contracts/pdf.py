"""PDF to text in a child process with limits on time, memory and pages.

A hostile PDF can make any parser spin or swell; a child can be ended, a thread cannot.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from .problems import DocumentError
from .text import Block, DocumentText, assemble

MAX_SECONDS: Final = 60
MAX_MEMORY_BYTES: Final = 1024 * 1024 * 1024
MAX_PAGES: Final = 2_000
MAX_OUTPUT_CHARACTERS: Final = 2_000_000

# What starts an interpreter, and none of the worker's secrets.
_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
_CHILD = Path(__file__).with_name("pdf_child.py")
_MESSAGES: Final = {
    "encrypted": "The PDF is protected by a password.",
    "too_many_pages": f"The PDF has more than {MAX_PAGES:,} pages.",
    "damaged": "The PDF is damaged.",
    "too_much_memory": "Reading the PDF needs too much memory.",
}


def read_pdf(data: bytes) -> DocumentText:
    """Return the text of a PDF, page by page.

    Raises:
        DocumentError: encrypted, too_many_pages, damaged, too_much_memory, took_too_long.
    """
    if b"%PDF-" not in data[:1024]:
        raise DocumentError("damaged", "The file is not a PDF.")
    limits = f"{MAX_SECONDS},{MAX_MEMORY_BYTES},{MAX_PAGES},{MAX_OUTPUT_CHARACTERS}"
    try:
        child = subprocess.run(  # noqa: S603 - our own interpreter and our own file
            [sys.executable, "-I", "-X", "utf8", str(_CHILD), limits],
            input=data,
            capture_output=True,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            timeout=MAX_SECONDS + 5,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DocumentError(
            "took_too_long", f"Reading the PDF took longer than {MAX_SECONDS} seconds."
        ) from error
    except OSError as error:
        raise DocumentError("unreadable", "No process could be started to read the PDF.") from error
    return _parse_answer(child.stdout, child.returncode)


def _parse_answer(output: bytes, return_code: int) -> DocumentText:
    try:
        answer = json.loads(output) if output else {}
    except ValueError:
        answer = {}
    if "pages" in answer:
        blocks = [Block(page) for page in answer["pages"]]
        return assemble(blocks, format_name="pdf", max_characters=MAX_OUTPUT_CHARACTERS)
    code = str(answer.get("error", "took_too_long" if return_code in (-9, -24) else "damaged"))
    if code == "took_too_long":
        raise DocumentError(code, f"Reading the PDF took longer than {MAX_SECONDS} seconds.")
    raise DocumentError(code, _MESSAGES.get(code, _MESSAGES["damaged"]))
