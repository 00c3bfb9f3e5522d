"""One request to another system: the address that was checked is the one that is called (S76-S80).

No redirects, no proxies of the environment, no shared connections; the answer's body is not read.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import httpx

from tasks_app.domain.destinations import Destination, is_public

CONNECT_SECONDS = 5.0


class Sent(StrEnum):
    """What is known after a request."""

    ANSWERED = "answered"
    # Nothing of it has left this machine.
    NOT_SENT = "not_sent"
    # It may have arrived.
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended: its status, or a reason without the address."""

    sent: Sent
    status: int | None = None
    reason: str = ""

    @property
    def is_success(self) -> bool:
        """Tell whether the other side took it."""
        return self.status is not None and httpx.codes.is_success(self.status)


def post(
    to: Destination, body: bytes, headers: Mapping[str, str], *, timeout_seconds: float
) -> Answer:
    """Send JSON and return what became of it.

    Takes no longer than the time-out, or than the system takes to look up a name.
    """
    return asyncio.run(_post_in_time(to, body, headers, timeout_seconds))


async def _post_in_time(
    to: Destination, body: bytes, headers: Mapping[str, str], timeout_seconds: float
) -> Answer:
    state = Answer(Sent.NOT_SENT, reason="timeout")
    try:
        async with asyncio.timeout(timeout_seconds):
            try:
                addresses = await _resolve(to.host, to.port)
            except OSError:
                return Answer(Sent.NOT_SENT, reason="name_unknown")
            if not to.may_be_private and not all(map(is_public, addresses)):
                return Answer(Sent.NOT_SENT, reason="egress_denied")
            for address in addresses:
                state = Answer(Sent.UNCLEAR, reason="timeout")
                state = await _post_to(address, to, body, headers)
                if state.sent is not Sent.NOT_SENT:
                    break
    except TimeoutError:
        pass
    return state


async def _post_to(
    address: str, to: Destination, body: bytes, headers: Mapping[str, str]
) -> Answer:
    url = httpx.URL(to.url)
    named = {**headers, "Host": url.netloc.decode(), "Content-Type": "application/json"}
    try:
        async with (
            httpx.AsyncClient(
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
                verify=_trusted(),
            ) as client,
            client.stream(
                "POST",
                url.copy_with(host=address),
                content=body,
                headers=named,
                extensions={"sni_hostname": to.host},
            ) as answer,
        ):
            reason = httpx.codes.get_reason_phrase(answer.status_code)
            return Answer(Sent.ANSWERED, answer.status_code, reason)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        return Answer(Sent.NOT_SENT, reason=_word(error))
    except (httpx.HTTPError, ValueError) as error:
        return Answer(Sent.UNCLEAR, reason=_word(error))


async def _resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raises: OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


@cache
def _trusted() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _word(error: Exception) -> str:
    return type(error).__name__
