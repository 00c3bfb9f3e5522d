"""Why a document, a folder or a publication was refused, as values with a stable code.

The workflow turns them into item errors and goal errors; nothing here knows of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class DocumentError(Exception):
    """One document cannot be reviewed; the others can.

    Attributes:
        code: Stable, snake_case, listed in docs/how-to/review-contracts.md.
        message: One sentence for the person who reads the report.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class FolderError(Exception):
    """The folder as a whole cannot be reviewed.

    Attributes:
        code: Stable, snake_case.
        message: One sentence that says what to change.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class PublicationError(Exception):
    """A publication was not made.

    Attributes:
        code: Stable, snake_case.
        message: One sentence that says what happened.
        retryable: Whether the same call may succeed later.
    """

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retryable = retryable


def outside(act: str, roots: Sequence[Path], setting: str) -> str:
    """Return what to tell about a folder outside `roots`, which the operator has allowed.

    Args:
        act: What the folders may be: "read", "published to".
        roots: The allowed folders; they are named, for they are no secret.
        setting: The setting to name when nothing is allowed.
    """
    if not roots:
        return f"No folder may be {act} here; the operator allows some by setting {setting}."
    names = ", ".join(map(str, roots))
    return f"This folder is outside the folders that may be {act}: {names}."
