"""Pieces of messages that a task is still saying: shown at once, never stored, no loss if lost.

They have a channel of their own, so that only readers hear them who show them. The whole message
follows in the journal and takes their place.
"""

import json
from dataclasses import asdict, dataclass
from uuid import UUID

PIECE = "piece"


@dataclass(frozen=True, slots=True)
class Piece:
    """The next few words of a message; `fence` tells which worker of the task says them."""

    message_id: str
    step: str
    text: str
    fence: int

    def form(self) -> dict[str, object]:
        """Return what is sent."""
        return asdict(self)


def parse(data: str) -> Piece | None:
    """Return a piece as it was sent; None for one that another version has sent otherwise."""
    try:
        return Piece(**json.loads(data))
    except (ValueError, TypeError):
        return None


def pieces_channel(task_id: UUID) -> str:
    """Return the channel of what one task is saying."""
    return f"task-{task_id}-pieces"
