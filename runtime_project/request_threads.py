"""Threads that serve requests: each request has one for itself, and a few are kept for the next."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from typing_extensions import override

P = ParamSpec("P")
T = TypeVar("T")

# More than have work at once: there are eight connections to the database.
KEPT = 16


class RequestThread(ThreadPoolExecutor):
    """One thread, which knows whether it has anything left to do."""

    def __init__(self) -> None:
        super().__init__(max_workers=1, thread_name_prefix="request")
        self._unfinished: list[Future[object]] = []

    @override
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function after those that were submitted before."""
        future = super().submit(fn, *args, **kwargs)
        self._unfinished = [one for one in self._unfinished if not one.done()]
        self._unfinished.append(future)  # type: ignore[arg-type]
        return future

    @property
    def is_free(self) -> bool:
        """Tell whether all that was submitted has ended; a view goes on when nobody waits."""
        return all(one.done() for one in self._unfinished)


class RequestThreads:
    """Lends threads; to start one costs as much as many a request."""

    def __init__(self) -> None:
        self._idle: list[RequestThread] = []

    @contextmanager
    def lent(self) -> Iterator[RequestThread]:
        """Lend a thread to one request; call it on the event loop only."""
        thread = self._idle.pop() if self._idle else RequestThread()
        try:
            yield thread
        finally:
            if thread.is_free and len(self._idle) < KEPT:
                self._idle.append(thread)
            else:
                thread.shutdown(wait=False)
