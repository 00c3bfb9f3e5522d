"""The web process of the local stack: serves on the socket that its supervisor listens on.

The supervisor holds the socket from the moment it chose the port until it ends, so nobody else can
answer there, also while this process starts or is started again.
"""

import socket
import sys

import uvicorn

GRACE_SECONDS = 5


def main(descriptor: int) -> int:
    """Serve until a signal ends it."""
    listener = socket.socket(fileno=descriptor)
    config = uvicorn.Config(
        "runtime_project.asgi:application",
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
        # A line for each request costs a tenth of answering it; refusals are logged by themselves.
        access_log=False,
        lifespan="on",
    )
    server = uvicorn.Server(config)
    server.run(sockets=[listener])
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
