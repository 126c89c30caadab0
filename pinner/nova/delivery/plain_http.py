"""One request over HTTP that ends in time, whatever the server does. No proxy is used and no redirect followed: both
would get the token. It runs inside Nova and libvirt's hook script: only the standard library and Python 3.8."""

from __future__ import annotations

import re
import socket
import ssl
import time
import urllib.parse
from typing import Any

MAX_ANSWER = 256 * 1024
"""Bytes of an answer. The capacity of a host with 16 nodes has about 4 KiB."""
_TOKEN = re.compile(r"[\x21-\x7e]*")
_UNIX = "unix:"


def get(url: str, token: str, tls: ssl.SSLContext | None, seconds: float) -> bytes:
    """The body of an answer with status 200. Raises OSError and ValueError."""
    parts = urllib.parse.urlsplit(url)
    request = _request(f"GET {parts.path}?{parts.query}", parts.netloc, token, None)
    end = time.monotonic() + seconds
    with _connected(parts, tls, end) as sock:
        status, _, head, body = _parsed(_answer(sock, request, end, seconds, whole=True))
    if status != "200":
        raise ValueError(f"HTTP status {status}")
    if b"\r\ntransfer-encoding:" in head.lower():
        raise ValueError("the answer has a transfer encoding")
    return body


def post(server: str, path: str, token: str, body: bytes, seconds: float) -> None:
    """Send JSON to http://, https:// or unix:/PATH. Raises OSError for a refusal, ValueError for a wrong argument."""
    parts = urllib.parse.urlsplit(server.rstrip("/"))
    end = time.monotonic() + seconds
    if server.startswith(_UNIX):
        request = _request(f"POST {path}", "localhost", token, body)
        connected = _connect(socket.socket(socket.AF_UNIX), server[len(_UNIX) :], seconds)
    else:
        request = _request(f"POST {parts.path}{path}", parts.netloc, token, body)
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        connected = _connected(parts, tls, end)
    with connected as sock:
        answer = _answer(sock, request, end, seconds, whole=False)
    try:
        status, reason, _, _ = _parsed(answer)
    except ValueError as error:
        raise OSError(str(error)) from None
    if not status.startswith("2"):
        raise OSError(f"HTTP Error {status}: {reason}")


def _request(line: str, host: str, token: str, body: bytes | None) -> bytes:
    if not _TOKEN.fullmatch(token):
        raise ValueError("the token has characters that a header cannot have")
    headers = [f"{line} HTTP/1.1", "Host: " + host.rpartition("@")[2], "Connection: close"]
    headers += [f"Authorization: Bearer {token}"] if token else []
    headers += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body is not None else []
    return ("\r\n".join(headers) + "\r\n\r\n").encode("ascii") + (body or b"")


def _connected(parts: urllib.parse.SplitResult, tls: ssl.SSLContext | None, end: float) -> socket.socket:
    port = parts.port or (443 if parts.scheme == "https" else 80)
    plain = _first_connected(parts.hostname or "", port, end)
    if tls is None:
        return plain
    with plain:  # wrap_socket takes the descriptor over where it succeeds
        plain.settimeout(_remaining(end))
        return tls.wrap_socket(plain, server_hostname=parts.hostname or "")


def _first_connected(host: str, port: int, end: float) -> socket.socket:
    """The addresses share the time that is left."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        try:
            seconds = _remaining(end) / (len(addresses) - number)
            return _connect(socket.socket(family, kind, protocol), address, seconds)
        except OSError:
            if number + 1 == len(addresses):
                raise
    raise OSError(f"{host} has no address")


def _remaining(end: float) -> float:
    """Never 0, which would mean another kind of socket."""
    return max(end - time.monotonic(), 0.001)


def _connect(sock: socket.socket, address: Any, seconds: float) -> socket.socket:
    try:
        sock.settimeout(seconds)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _answer(sock: socket.socket, request: bytes, end: float, seconds: float, *, whole: bool) -> bytes:
    """At least its head if not ``whole``."""
    sock.settimeout(_remaining(end))
    sock.sendall(request)
    received = b""
    while len(received) <= MAX_ANSWER:
        sock.settimeout(_remaining(end))
        try:
            part = sock.recv(65536)
        except socket.timeout:  # noqa: UP041 - Python 3.8 has two of them
            part = None
        if part is None or time.monotonic() > end:
            raise OSError(f"no complete answer within {seconds:g} s")
        received += part
        if not part or (not whole and b"\r\n\r\n" in received):
            return received
    raise ValueError(f"the answer has more than {MAX_ANSWER} bytes")


def _parsed(received: bytes) -> tuple[str, str, bytes, bytes]:
    head, end, body = received.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if not end or len(status) < 2 or not status[0].startswith(b"HTTP/1."):
        raise ValueError("the answer is not HTTP")
    texts = [_printable(part[:80].decode("ascii", "replace")) for part in (*status, b"")]
    return texts[1][:3], texts[2], head, body


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
