"""Where a request may go: listed hosts, public addresses (security S77, S78)."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

MAX_URL_CHARACTERS = 2000
_PORTS = {"https": 443, "http": 80}
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
# The last label of a name begins with a letter, which no spelling of an IPv4 address does.
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]")
# What Python takes for global and is not, or leads elsewhere: carriers' own, relays, translators.
_REFUSED = tuple(
    ip_network(text)
    for text in ("100.64.0.0/10", "192.88.99.0/24", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16",
                 "2001::/32")
)  # fmt: skip


class DestinationRefusedError(ValueError):
    """No request may be sent there; the text names neither path nor query."""


@dataclass(frozen=True, slots=True)
class Destination:
    """An address that may be called. `may_be_private`: also inside the own network."""

    url: str
    host: str
    port: int
    may_be_private: bool

    @property
    def endpoint(self) -> str:
        """Return the address without its query."""
        return self.url.partition("?")[0]


def destination(url: str, *, hosts: Collection[str], private_hosts: Collection[str]) -> Destination:
    """Return where a URL leads.

    Args:
        hosts: public ones, reached over https: `name`, `name:port` or `*.suffix`.
        private_hosts: `name`, `address` or either with a port; http is enough for them.

    Raises: DestinationRefusedError.
    """
    if len(url) > MAX_URL_CHARACTERS or not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise DestinationRefusedError("This is not an address.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise DestinationRefusedError("This is not an address.") from None
    scheme = parts.scheme.lower()
    if not host or scheme not in _PORTS or "@" in parts.netloc or "#" in url:
        raise DestinationRefusedError("An address has a scheme and a host, no user and no mark.")
    usual = port is None or port == _PORTS[scheme]
    names = {f"{host}:{port or _PORTS[scheme]}", *([host] if usual else [])}
    if names & {name.lower() for name in private_hosts}:
        return Destination(url, host, port or _PORTS[scheme], may_be_private=True)
    if not _NAME.fullmatch(host) or not _is_listed(names, hosts):
        raise DestinationRefusedError(f"The host {host} is not on the list.")
    if scheme != "https":
        raise DestinationRefusedError("Only https leads to other networks.")
    return Destination(url, host, port or _PORTS[scheme], may_be_private=False)


def is_public(address: str) -> bool:
    """Tell whether an IP address belongs to the public internet, whatever form it has."""
    ip = ip_address(address)
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if not ip.is_global or ip.is_multicast or ip.is_reserved:
        return False
    return not any(ip in network for network in _REFUSED if network.version == ip.version)


def _is_listed(names: Collection[str], hosts: Collection[str]) -> bool:
    for listed in (host.lower() for host in hosts):
        if listed in names:
            return True
        if listed.startswith("*.") and any(name.endswith(listed[1:]) for name in names):
            return True
    return False
