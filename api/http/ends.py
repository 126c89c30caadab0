"""Names the two ends of a connection, as the kernel and the TLS handshake know them."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any

from pinner.api.access.peer import Peer, TcpPeer, UnixPeer
from pinner.api.http.request import Endpoints

_CREDENTIALS = struct.Struct("3i")
"""struct ucred: process, user, group (unix(7), SO_PEERCRED)."""


def endpoints(transport: asyncio.Transport, *, encrypted: bool) -> Endpoints:
    """The ends of an open connection. A Unix socket's server has no address of its own."""
    connection: socket.socket = transport.get_extra_info("socket")
    scheme = "https" if encrypted else "http"
    if connection.family == socket.AF_UNIX:
        return Endpoints(_unix_peer(connection), scheme, "localhost", "")
    own: tuple[str, int, *tuple[int, ...]] = transport.get_extra_info("sockname")
    return Endpoints(_tcp_peer(transport), scheme, own[0], str(own[1]))


def _unix_peer(connection: socket.socket) -> Peer:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return UnixPeer(uid, pid)


def _tcp_peer(transport: asyncio.Transport) -> Peer:
    peer: tuple[str, int, *tuple[int, ...]] = transport.get_extra_info("peername")
    address = ip_address(peer[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped  # an IPv4 client of a socket that serves both families
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return TcpPeer(str(address), _common_name(tls) if tls else "")


def _common_name(tls: ssl.SSLObject) -> str:
    """The common name of the client's certificate that the handshake has verified; empty without one."""
    certificate: Mapping[str, Any] = tls.getpeercert() or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[-1] if names else ""
