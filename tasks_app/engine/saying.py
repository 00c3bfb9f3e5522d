"""What a step shows of a message while it is still being made: a few pieces a second."""

import time
from uuid import UUID

from tasks_app.engine import secret_values
from tasks_app.events import publisher
from tasks_app.events.pieces import Piece

# Pieces that follow each other faster go together.
PAUSE_SECONDS = 0.05
# One piece has at most so many characters.
MAX_CHARACTERS = 8 * 1024


class Saying:
    """The message that a step is making now; no secret, nor a part of one, is shown."""

    def __init__(self, task_id: UUID, fence: int, step: str) -> None:
        self._task_id = task_id
        self._fence = fence
        self._step = step
        self._text = ""
        self._shown = 0
        self._shown_at = 0.0

    def add(self, message_id: str, piece: str) -> None:
        """Take the next piece and show what may be shown by now."""
        self._text += piece
        if time.monotonic() - self._shown_at >= PAUSE_SECONDS:
            self._show(message_id, secret_values.shown_part(self._text))

    def end(self, message_id: str) -> None:
        """Show the rest: the message is whole."""
        self._show(message_id, secret_values.scrub(self._text))
        self._text, self._shown, self._shown_at = "", 0, 0.0

    def _show(self, message_id: str, text: str) -> None:
        while self._shown < len(text):
            piece = text[self._shown : self._shown + MAX_CHARACTERS]
            self._shown += len(piece)
            self._shown_at = time.monotonic()
            told = Piece(message_id, self._step, piece, self._fence)
            publisher.publish_piece(self._task_id, told)
