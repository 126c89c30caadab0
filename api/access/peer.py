"""The peer of a connection, by the kernel or the TLS handshake, and the client's address behind proxies."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from pinner.model.errors import Invalid

ENVIRON = "pinner.peer"
"""The peer's key in the WSGI environment."""


@dataclass(frozen=True, slots=True)
class UnixPeer:
    """The process at the other end of a Unix socket (SO_PEERCRED, unix(7))."""

    uid: int
    pid: int


@dataclass(frozen=True, slots=True)
class TcpPeer:
    address: str
    certificate: str = ""
    """The common name of the client's verified certificate; empty: none."""


Peer = UnixPeer | TcpPeer

Networks = tuple[IPv4Network | IPv6Network, ...]

_CLIENT_PREFIX = 64
"""Bits: one client usually has a whole /64 of IPv6 (RFC 6177)."""


def parse_networks(texts: Iterable[str], field: str) -> Networks:
    """Addresses and networks, such as 10.0.0.7 and 2001:db8::/64. Raises Invalid."""
    networks = []
    for text in texts:
        try:
            network = ip_network(text)
        except ValueError as error:
            raise Invalid(field, text, f"an IP address or network such as 10.0.0.7 or 10.0.0.0/24 ({error})") from None
        if network.prefixlen == 0:
            raise Invalid(field, text, "the addresses of your proxies; this network is every address")
        networks.append(network)
    return tuple(networks)


def is_trusted(address: str, trusted: Networks) -> bool:
    parsed = _parse(address)
    return parsed is not None and any(parsed in network for network in trusted)


def client_address(peer: str, forwarded_for: str, trusted: Networks) -> str:
    """The last address of X-Forwarded-For that is no trusted proxy: each proxy appends its own peer's. An entry that is
    no address ends the search at the proxy that wrote it."""
    address = _parse(peer)
    hop = str(address) if address else peer
    for entry in reversed(forwarded_for.split(",")):
        parsed = _parse(entry.strip())
        if parsed is None or not is_trusted(hop, trusted):
            break
        hop = str(parsed)
    return hop


def throttle_key(address: str) -> str:
    """The address; of IPv6 the /64 network."""
    parsed = _parse(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((int(parsed), _CLIENT_PREFIX), strict=False))
    return address


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """IPv4 written as IPv6 (RFC 4291, 2.5.5.2) counts as IPv4."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address
