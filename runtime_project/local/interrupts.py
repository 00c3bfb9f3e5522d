"""Ctrl-C and SIGTERM: once means stop in order, twice means kill."""

import os
import signal
from collections.abc import Callable
from types import FrameType

EXIT_INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """Somebody asked this command to end; not an Exception, so that no handler swallows it."""


def install(kill: Callable[[], None]) -> None:
    """Raise `Interrupted` in the main thread at the first signal; `kill` and exit at the second."""

    def second(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        kill()
        os._exit(EXIT_INTERRUPTED)

    def first(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, second)
        raise Interrupted

    for number in SIGNALS:
        signal.signal(number, first)
