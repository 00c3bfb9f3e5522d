"""A TCP proxy that a test can make cut connections: after some text, or when nothing flows."""

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class CuttingProxy:
    """Passes bytes on, in a thread of its own.

    Attributes:
        idle_seconds: connections on which nothing flows for so long are cut.
        cut_after: how many times each text of an answer may pass before its connection is cut,
            once; the text itself still passes.
        cuts: how many connections were cut.
    """

    def __init__(self, url: str, *, idle_seconds: float | None = None) -> None:
        target = urlsplit(url)
        self._target = (target.hostname or "", target.port or 80)
        self.idle_seconds = idle_seconds
        self.cut_after: dict[bytes, int] = {}
        self.cuts = 0
        self.url = ""
        self._handlers: list[asyncio.Future[None]] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._handlers.append(asyncio.ensure_future(self._connect(reader, writer)))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        up = asyncio.ensure_future(self._pass(reader, there_writer, answers=False))
        down = asyncio.ensure_future(self._pass(there_reader, writer, answers=True))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            for side in (writer, there_writer):
                side.transport.abort()
                with suppress(OSError):
                    await side.wait_closed()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        idle = self.idle_seconds if answers else None
        while True:
            try:
                async with asyncio.timeout(idle):
                    data = await reader.read(65536)
            except TimeoutError:
                self.cuts += 1
                return
            if not data:
                return
            place = self._cut_place(data) if answers else None
            writer.write(data if place is None else data[:place])
            await writer.drain()
            if place is not None:
                self.cuts += 1
                return

    def _cut_place(self, data: bytes) -> int | None:
        """Return where an answer ends for its reader, if its connection is to be cut here."""
        for text, left in list(self.cut_after.items()):
            place = -1
            for number in range(data.count(text)):
                place = data.index(text, place + 1)
                if number + 1 == left:
                    del self.cut_after[text]
                    return place + len(text)
            self.cut_after[text] = left - data.count(text)
        return None
