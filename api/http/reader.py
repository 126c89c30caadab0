"""Reads the requests of one connection, within the limits of a client. llhttp parses them strictly: two parsers that
read invalid bytes differently, such as two lengths or a folded header, let a client smuggle a request past a proxy (RFC
9112, section 11.2). A request is complete only with as many bytes of a body as its Content-Length says."""

from dataclasses import dataclass
from typing import Literal

import httptools

from pinner.api.http.messages import HttpRequest, RequestRefused, malformed

MAX_BODY_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class ClientLimits:
    body_bytes: int = MAX_BODY_BYTES
    """``serve`` (api/server.py) replaces it by the application's limit."""
    head_bytes: int = 64 * 1024
    """The request line and all headers of one request."""
    headers: int = 100
    head_seconds: float = 10.0
    """The time from the connection, or from the first byte of a later request, to the end of the head."""
    body_seconds: float = 30.0
    """The time from the end of the head to the end of the body."""
    idle_seconds: float = 30.0
    """The time from an answer to the connection's next request."""
    send_seconds: float = 60.0
    """The time in which the client must read an answer, or one event of a stream."""
    linger_seconds: float = 2.0
    """How long after a refusal the server discards what the client still sends: after a close at once, the client could
    lose the answer (RFC 9112, section 9.6)."""
    connections: int = 512
    """One more closes the connection whose client the server has waited for longest."""
    pipelined: int = 16
    """Requests that one client may send before it reads the first answer. Together they may be as large as one."""
    held_bytes: int = 64 * 1024 * 1024
    """Unread answers, and requests without a worker, of all connections. Beyond, the one with most is dropped."""


Phase = Literal["idle", "head", "body"]


class RequestReader:
    """Gives the requests in order, and reads nothing after the first malformed one."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._request = HttpRequest()
        self._head_bytes = 0
        self._line = b""
        self._length = 0
        self._announced = 0
        self._missing = 0
        """Bytes of a body whose message the parser has ended at its head."""
        self._refused: RequestRefused | None = None
        self._complete: list[HttpRequest | RequestRefused] = []
        self.phase: Phase = "idle"
        self.wants_continue = False
        """The client waits for ``100 Continue`` before it sends the body (RFC 9110, section 10.1.1)."""

    @property
    def size(self) -> int:
        return 0 if self.phase == "idle" else self._request.size

    def feed(self, data: bytes) -> list[HttpRequest | RequestRefused]:
        """A RequestRefused is the last item: no later byte of the connection counts."""
        if self._refused:
            return []
        at = 0
        try:
            while at < len(data) and not self._refused:
                at += self._take_missing(data, at) if self._missing else self._parse(self._part(data, at))
        except RequestRefused as refused:
            self._refused = refused
            self._complete.append(refused)
        except MemoryError:
            self._request = HttpRequest()
            self._refused = RequestRefused(
                503, "overloaded", "the server has no memory for this request; try again later"
            )
            self._complete.append(self._refused)
        complete, self._complete = self._complete, []
        return complete

    def on_message_begin(self) -> None:
        if self._missing:
            self._refuse(malformed("the body is shorter than its Content-Length"))
        self._request, self._length, self._announced = HttpRequest(), 0, 0
        self.phase = "head"

    def on_url(self, part: bytes) -> None:
        self._request.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """A chunked body is refused, so no trailers arrive."""
        self._length += len(name) + len(value) + 4
        headers = self._request.headers
        if len(headers) == self._limits.headers or self._length > self._limits.head_bytes:
            self._refuse_head()
        headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        request = self._request
        request.method = self._parser.get_method().decode()
        request.version = self._parser.get_http_version()
        request.keep_alive = self._parser.should_keep_alive()
        if len(request.target) + self._length > self._limits.head_bytes:
            self._refuse_head()
        names = [name for name, _ in request.headers]
        protocol = self._line.rpartition(b" ")[2].rpartition(b"/")[0]
        if protocol != b"HTTP":  # llhttp also reads RTSP and ICE
            self._refuse(malformed(f"{protocol[:100].decode('latin-1')!r} is not supported; use HTTP/1.1"))
        if request.version not in ("1.0", "1.1"):
            self._refuse(malformed(f"HTTP/{request.version} is not supported; use HTTP/1.1"))
        if request.method == "CONNECT":
            self._refuse(malformed("CONNECT is not supported; pinner is no proxy"))
        if names.count(b"host") != 1 and (request.version == "1.1" or b"host" in names):
            self._refuse(malformed("Host: exactly one Host header is needed (RFC 9112, section 3.2)"))
        headers = dict(request.headers)
        self._check_body(headers)
        self.phase = "body"
        self._head_bytes = 0
        self.wants_continue = headers.get(b"expect", b"").lower() == b"100-continue" and request.version == "1.1"

    def on_body(self, part: bytes) -> None:
        self._request.body += part

    def on_message_complete(self) -> None:
        """llhttp ends a message with an offer to upgrade; pinner ignores that (RFC 9110, 7.8), and reads the body."""
        self._missing = self._announced - len(self._request.body)
        if not self._missing:
            self._end_request()

    def _part(self, data: bytes, at: int) -> bytes:
        """The next bytes for the parser: a line of a head, or a body, so it never sees two messages at once."""
        if self.phase == "body":
            return data[at : at + self._announced - len(self._request.body)] or data[at:]
        part = data[at : data.find(b"\n", at) + 1 or len(data)]
        self._head_bytes += len(part)
        if self.phase == "idle":
            self._line = b""  # of an earlier message, or empty
        if not self._line.endswith(b"\n"):
            self._line += part
        return part

    def _parse(self, data: bytes) -> int:
        try:
            self._parser.feed_data(data)
            if self.phase == "head" and self._head_bytes > self._limits.head_bytes:
                self._refuse_head()
        except httptools.HttpParserUpgrade as upgrade:
            used: int = upgrade.args[0]
            return used
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, MemoryError):  # of a callback
                raise error.__context__ from None
            raise self._refused or malformed(f"not a valid HTTP/1.1 request: {error}") from None
        return len(data)

    def _take_missing(self, data: bytes, at: int) -> int:
        part = data[at : at + self._missing]
        self._request.body += part
        self._missing -= len(part)
        if not self._missing:
            self._end_request()
        return len(part)

    def _end_request(self) -> None:
        self._complete.append(self._request)
        self.phase = "idle"
        self.wants_continue = False

    def _check_body(self, headers: dict[bytes, bytes]) -> None:
        limit = self._limits.body_bytes
        if b"transfer-encoding" in headers:
            given = headers[b"transfer-encoding"][:100].decode("latin-1")
            message = f"Transfer-Encoding: {given!r} is not accepted; send the body with a Content-Length"
            self._refuse(RequestRefused(411, "length_required", message))
        self._announced = int(headers.get(b"content-length", b"0"))
        if self._announced > limit:
            message = f"Content-Length: {self._announced} is too large: the limit is {limit} bytes"
            self._refuse(RequestRefused(413, "too_large", message))

    def _refuse_head(self) -> None:
        limits = self._limits
        message = f"request head: the limit is {limits.head_bytes} bytes and {limits.headers} headers"
        self._refuse(RequestRefused(431, "head_too_large", message))

    def _refuse(self, refused: RequestRefused) -> None:
        """llhttp replaces an exception of a callback with its own, so the refusal is kept here, too."""
        self._refused = refused
        raise refused
