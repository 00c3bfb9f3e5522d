"""Notices that this server was told to stop, so that streams end at once instead of holding it up.

A server waits for open responses; a stream would never end by itself. The server's own handler of
the signal is kept and called: this only listens along.
"""

import asyncio
import signal
import threading
from types import FrameType

from tasks_app.events import listening

_watched: set[signal.Signals] = set()


def watch() -> None:
    """Listen along to SIGTERM and SIGINT from now on, where this is the server's main thread."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        if number not in _watched:
            _watched.add(number)
            _listen_along(number, loop)


def _listen_along(number: signal.Signals, loop: asyncio.AbstractEventLoop) -> None:
    before = signal.getsignal(number)

    def noticed(received: int, frame: FrameType | None) -> None:
        # Not here: the thread may hold the manager's lock right now.
        loop.call_soon_threadsafe(listening.manager().end_all)
        if callable(before):
            before(received, frame)

    if callable(before):
        signal.signal(number, noticed)
