"""Asks running slices to hand on when their worker is told to stop (E43, P20).

The flag lies in memory that parent and children of a prefork worker share: the parent hears
SIGTERM, the children look at it at each safe point.
"""

import multiprocessing

# A plain shared byte: writing it is atomic, so no lock can be left held by a killed process.
_requested = multiprocessing.Value("b", 0, lock=False)


# This process alone is to stop; its worker goes on with another one.
_leaving = False


def leave() -> None:
    """Ask the slice of this process to hand on at its next safe point."""
    global _leaving
    _leaving = True


def request() -> None:
    """Ask every slice of this worker to hand on at its next safe point."""
    _requested.value = 1


def requested() -> bool:
    """Tell whether this process or its whole worker is stopping."""
    return _leaving or bool(_requested.value)
