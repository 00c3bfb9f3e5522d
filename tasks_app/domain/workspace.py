"""Files of a thread: which count, what a run changed, and whether it handed over what it made.

Plain rules (runs contract R64-R65): the engine decides by them, queries show by them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypedDict

# What a run makes below this folder is for people and must be handed over.
OUTPUTS = "outputs"
# Lists of items, which are data between steps.
ITEMS = ".items"
_NO_FILES = frozenset({ITEMS, ".tool-results", ".cache", "__pycache__", "tmp", "temp"})
_PASSING_NAMES = (".tmp", ".part", ".pyc", "~")


class FileFact(TypedDict):
    """One file as it is: where its bytes are found, and what they are."""

    sha256: str
    size_bytes: int
    media_type: str


Files = Mapping[str, FileFact]


def is_file(path: str) -> bool:
    """Tell whether a name is a path inside a workspace, and of something that stays there."""
    parts = PurePosixPath(path).parts
    return (
        bool(parts)
        and path == "/".join(parts)
        and ".." not in parts
        and not _NO_FILES.intersection(parts)
        and not path.endswith(_PASSING_NAMES)
    )


def is_output(path: str) -> bool:
    """Tell whether a file is for people."""
    return covers(OUTPUTS, path) and is_file(path)


def covers(named: str, path: str) -> bool:
    """Tell whether a path is the named one, or lies below the named folder."""
    folder = named.rstrip("/")
    return path == folder or path.startswith(f"{folder}/")


def changes(before: Files, after: Files) -> dict[str, str]:
    """Return what became of each changed file: `created` or `modified`; nothing is ever deleted."""
    return {
        path: "modified" if path in before else "created"
        for path, fact in sorted(after.items())
        if path not in before or before[path]["sha256"] != fact["sha256"]
    }


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a run handed over what it made; all paths in order.

    `matched` were made and handed over; `missing` names what was asked for and was not.
    """

    produced: Sequence[str]
    presented: Sequence[str]
    matched: Sequence[str]
    missing: Sequence[str]

    @property
    def problem(self) -> str:
        """Return why the delivery is incomplete; empty when it is not."""
        if self.produced and not self.matched:
            return "Artifact delivery incomplete: no produced output artifact was presented"
        if self.missing:
            return f"Artifact delivery incomplete: not presented: {', '.join(self.missing)}"
        return ""


def judge(
    before: Files, after: Files, presented: Collection[str], wanted: Collection[str]
) -> Verdict:
    """Return the verdict on a run.

    Args:
        presented: paths of files with something in them that the run handed over.
        wanted: names that the request listed: a path, one below `outputs`, or a file's name.
    """
    produced = [path for path in changes(before, after) if is_output(path)]
    shown = frozenset(presented)
    return Verdict(
        produced=produced,
        presented=sorted(shown),
        matched=[path for path in produced if path in shown],
        missing=[name for name in wanted if not any(_is_named(name, path) for path in shown)],
    )


def _is_named(name: str, path: str) -> bool:
    return covers(name, path) or covers(f"{OUTPUTS}/{name}", path) or path.endswith(f"/{name}")
