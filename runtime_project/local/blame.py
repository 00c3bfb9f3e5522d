"""Why a command of ours failed: somebody's code, or local data that does not fit it."""

import re
import sys
from pathlib import Path

from runtime_project.local import state

_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
# Exceptions of the database and of migrations: what is stored does not fit what runs.
_UNREACHABLE = re.compile(r"^(django\.db\.utils|psycopg)\.OperationalError", re.MULTILINE)
_ABOUT_DATA = re.compile(r"^(django\.db\.|psycopg\.)", re.MULTILINE)
_OURS = ("runtime_project", "tasks_app", "ledger_app", "manage.py")
MEND = "mend your code, then start again; the local data can stay"
FRESH = "python3 manage.py up --fresh (deletes the local data)"


def find_cause(log: Path) -> tuple[str, str]:
    """Return the likely cause and what to try, from the last traceback of a log."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        text = ""
    last = text.rpartition(_TRACEBACK)[2] if _TRACEBACK in text else ""
    if _UNREACHABLE.search(last):
        return "the database does not answer, or refuses the login", ""
    if _ABOUT_DATA.search(last):
        return "the local data does not fit the code", FRESH
    said = next(reversed(last.split("\n\n")[0].strip().splitlines()), "")
    place = _place(last)
    facts = ": ".join(text for text in (said.strip()[:200], place and f"see {place}") if text)
    return f"the code does not load ({facts})" if facts else "the code does not load", MEND


def _place(traceback: str) -> str:
    """Return file and line of the innermost frame in code that is not installed: authors' first."""
    frames = [(Path(found["file"]), found["line"]) for found in _FRAME.finditer(traceback)]
    own = [frame for frame in frames if _is_own(frame[0])]
    authors = [frame for frame in own if not _is_ours(frame[0])]
    for file, line in reversed(authors or own):
        return f"{file}, line {line}"
    return ""


def _is_own(file: Path) -> bool:
    installed = (Path(sys.prefix), Path(sys.base_prefix) / "lib")
    return file.is_absolute() and not any(file.is_relative_to(folder) for folder in installed)


def _is_ours(file: Path) -> bool:
    return any(file.is_relative_to(state.ROOT / name) for name in _OURS)
