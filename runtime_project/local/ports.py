"""Which port the web process takes, and who holds a busy one."""

import socket
from contextlib import suppress
from pathlib import Path

FIRST_PORT = 8000
LAST_PORT = 8019
HIGHEST_PORT = 65535
BACKLOG = 128


def parse(text: str) -> int:
    """Return the port that a person wrote.

    Raises:
        ValueError: not a number from 1 to 65535, in words.
    """
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= HIGHEST_PORT:
        return int(text)
    raise ValueError(f"{text} is not a port: 1 to {HIGHEST_PORT}")


def listen(host: str, port: int) -> socket.socket | None:
    """Return a socket that listens there, or None when somebody else does.

    Whoever holds it owns the port: what connects meanwhile waits for the server that gets it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        return None
    return listener


def listen_anywhere(host: str) -> socket.socket | None:
    """Return a socket that listens on the first free port of the range, or None."""
    tried = (listen(host, port) for port in range(FIRST_PORT, LAST_PORT + 1))
    return next((listener for listener in tried if listener is not None), None)


def find_holder(port: int) -> str:
    """Return "pid 12 (name)" of whoever listens on a port, or "" when it cannot be seen."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not inodes:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                if str(descriptor.readlink()) in inodes:
                    return f"pid {process.name} ({(process / 'comm').read_text().strip()})"
    return ""


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found
