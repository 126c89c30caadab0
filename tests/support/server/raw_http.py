"""Raw connections to an HTTP server, for requests that no HTTP client would send."""

import json
import re
import socket
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Answers:
    """All bytes that a server sent until it closed the connection."""

    raw: bytes
    seconds: float

    @property
    def statuses(self) -> list[int]:
        """The statuses of the answers, in order."""
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", self.raw)]

    @property
    def error(self) -> dict[str, Any]:
        """The error document of the last answer."""
        return json.loads(self.raw.rpartition(b"\r\n\r\n")[2])["error"]


def connect(url: str) -> socket.socket:
    """A connection to the server at ``url``: unix:/path or http://address:port."""
    if url.startswith("unix:"):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(20)
        peer.connect(url.removeprefix("unix:"))
        return peer
    parts = httpx.URL(url)
    return socket.create_connection((parts.host, parts.port), timeout=20)


def read_all(peer: socket.socket) -> bytes:
    """Everything until the server closes the connection; a reset ends it, too."""
    found = b""
    while True:
        try:
            data = peer.recv(65536)
        except ConnectionResetError:
            return found
        if not data:
            return found
        found += data


def exchange(url: str, *parts: bytes, pause: float = 0.0) -> Answers:
    """Send the parts, ``pause`` seconds apart, and read until the server closes the connection."""
    began = time.monotonic()
    with connect(url) as peer:
        for number, part in enumerate(parts):
            if number:
                time.sleep(pause)
            try:
                peer.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                break
        return Answers(read_all(peer), time.monotonic() - began)


@contextmanager
def many(url: str, count: int, sent: bytes = b""):
    """``count`` open connections, each of which has sent ``sent``."""
    with ExitStack() as stack:
        peers = []
        for _ in range(count):
            peers.append(stack.enter_context(connect(url)))
            try:
                peers[-1].sendall(sent)
            except OSError:
                continue
        yield peers


HEALTH = b"GET /healthcheck HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def slowest_health(url: str, times: int = 20) -> float:
    """The longest of ``times`` waits for /healthcheck, each over a new connection, in seconds."""
    longest = 0.0
    for _ in range(times):
        answers = exchange(url, HEALTH)
        assert answers.statuses == [200]
        longest = max(longest, answers.seconds)
    return longest
