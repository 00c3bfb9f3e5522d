"""One connection to a web server that asks and reads with little more than the bytes."""

import asyncio

_PATIENCE_SECONDS = 30
_BODILESS = frozenset({204, 304})

# Method, path, body, headers.
Request = tuple[str, str, str, dict[str, str]]


class Connection:
    """Asks one request after the other; opened with the first, and again after a failure."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Request) -> int:
        """Return the status of an answer that was read to its end; 0 when none came."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await self._ask(_bytes(request))
        except (OSError, EOFError, ValueError):
            self.close()
            return 0

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask(self, message: bytes) -> int:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(message)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        if status not in _BODILESS:
            await _read_body(reader, head)
        return status


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> None:
    _, named, rest = head.partition(b"\r\ncontent-length:")
    if named:
        await reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
        return
    # Chunked: a line with the size, the chunk, an empty line; the last chunk is empty.
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()


def _bytes(request: Request) -> bytes:
    method, path, body, headers = request
    data = body.encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data
