"""Why a document, a folder or a publication was refused, as values with a stable code.

The workflow turns them into item errors and goal errors; nothing here knows of either.
"""

from __future__ import annotations


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
