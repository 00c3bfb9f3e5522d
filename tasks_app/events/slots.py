"""How many streams one principal and one tenant may hold open in this process (security S27).

The limits are for each process: with several stream processes a client gets that many times more.
They keep one client from taking all of a process, nothing more.
"""

import threading
from collections import Counter
from collections.abc import Hashable
from uuid import UUID

MAX_A_PRINCIPAL = 20
MAX_A_TENANT = 200


class TooManyStreamsError(Exception):
    """No further stream fits; the text says whose limit it is."""


class Slot:
    """The right to one open stream, until `release` or until nobody holds it any more.

    The latter covers a client that goes away before its stream has begun.
    """

    def __init__(self, owner: "Slots", keys: tuple[Hashable, ...]) -> None:
        self._owner = owner
        self._keys = keys

    def release(self) -> None:
        """Give the place back; safe to call twice."""
        keys, self._keys = self._keys, ()
        self._owner.give_back(keys)

    def __del__(self) -> None:
        self.release()


class Slots:
    """Counts open streams."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[Hashable] = Counter()

    def take(self, tenant_id: UUID, actor: str) -> Slot:
        """Return a place for one more stream.

        Raises:
            TooManyStreamsError: the principal or the tenant holds as many as it may.
        """
        person, tenant = (tenant_id, actor), (tenant_id,)
        with self._lock:
            if self._open[person] >= MAX_A_PRINCIPAL:
                raise TooManyStreamsError(f"At most {MAX_A_PRINCIPAL} open streams for one caller.")
            if self._open[tenant] >= MAX_A_TENANT:
                raise TooManyStreamsError(f"At most {MAX_A_TENANT} open streams for one tenant.")
            self._open.update((person, tenant))
        return Slot(self, (person, tenant))

    def give_back(self, keys: tuple[Hashable, ...]) -> None:
        """Uncount one stream."""
        with self._lock:
            self._open.subtract(keys)
            for key in keys:
                if self._open[key] <= 0:
                    del self._open[key]

    def count(self) -> int:
        """Return how many streams are open in this process."""
        with self._lock:
            return sum(number for key, number in self._open.items() if _is_tenant(key))


def _is_tenant(key: Hashable) -> bool:
    return isinstance(key, tuple) and len(key) == 1


STREAMS = Slots()
