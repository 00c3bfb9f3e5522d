"""Many readers of server-sent events on one event loop, as cheap as readers can be."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Frame:
    """One event as it came: when, on this machine's monotonic clock; `data` is its JSON text."""

    at: float
    name: str
    id: str
    data: str

    def json(self) -> Any:
        """Return the data."""
        return json.loads(self.data)


@dataclass
class Reader:
    """One open stream and all that came over it.

    Attributes:
        opened: set with the first frame.
    """

    port: int
    path: str
    headers: dict[str, str]
    frames: list[Frame] = field(default_factory=list)
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self) -> None:
        """Read until the server ends the stream. Raises: RuntimeError for any other answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            lines = [f"GET {self.path} HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream"]
            lines += [f"{name}: {value}" for name, value in self.headers.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                raise RuntimeError(f"{self.path}: {head.decode()}")
            async for text in _frames(reader):
                self._take(text)
        finally:
            writer.close()

    def _take(self, text: str) -> None:
        fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line[1:])
        if fields:
            told = (fields.get(name, "") for name in ("event", "id", "data"))
            self.frames.append(Frame(time.monotonic(), *told))
            self.opened.set()


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the texts between blank lines of a chunked body."""
    waiting = b""
    while size := int(await reader.readline(), 16):
        chunk = await reader.readexactly(size + 2)
        *whole, waiting = (waiting + chunk[:-2]).split(b"\n\n")
        for text in whole:
            if text:
                yield text.decode()
