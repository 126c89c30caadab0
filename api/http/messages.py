"""The messages of HTTP: a whole request with its WSGI environment (PEP 3333), and the bytes of an answer."""

import sys
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from pinner.api.access.peer import ENVIRON, Peer, TcpPeer
from pinner.api.errors import error_document


class RequestRefused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def malformed(message: str) -> RequestRefused:
    return RequestRefused(400, "invalid", message)


@dataclass(slots=True)
class HttpRequest:
    method: str = ""
    target: bytes = b""
    """A path with its query, or an absolute URL (RFC 9112, section 3.2)."""
    version: str = "1.1"
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    """The names are in lower case."""
    body: bytearray = field(default_factory=bytearray)
    keep_alive: bool = False

    @property
    def size(self) -> int:
        return len(self.target) + sum(len(name) + len(value) for name, value in self.headers) + len(self.body)


@dataclass(frozen=True, slots=True)
class Endpoints:
    peer: Peer
    scheme: str
    name: str
    port: str
    """The server's own address; ``localhost`` and no port on a Unix socket."""


def environ(request: HttpRequest, ends: Endpoints) -> dict[str, Any]:
    """Raises RequestRefused for a target that is no path and no URL."""
    path, query, authority = _target(request.target)
    if b"%2f" in path.lower():
        # A proxy that decodes it sees another path, and may permit that one.
        raise malformed("request target: a path must have no encoded slash (%2F)")
    if path.startswith(b"//"):
        # A proxy may have rules for the path with one slash.
        raise malformed("request target: a path must begin with one slash")
    variables: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query.decode("latin-1"),
        "REQUEST_URI": request.target.decode("latin-1"),
        "SERVER_NAME": ends.name,
        "SERVER_PORT": ends.port,
        "SERVER_PROTOCOL": f"HTTP/{request.version}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": ends.scheme,
        "wsgi.input": BytesIO(request.body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        ENVIRON: ends.peer,
    }
    if isinstance(ends.peer, TcpPeer):
        variables["REMOTE_ADDR"] = ends.peer.address
    variables.update(_header_variables(request.headers))
    if authority:
        variables["HTTP_HOST"] = authority
    return variables


def _header_variables(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """A name with an underscore is left out: it would look like the same name with a hyphen."""
    variables: dict[str, str] = {}
    for name, value in headers:
        if b"_" in name:
            continue
        key = name.decode("latin-1").upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = f"HTTP_{key}"
        text = value.decode("latin-1")
        variables[key] = f"{variables[key]},{text}" if key in variables else text
    return variables


def _target(target: bytes) -> tuple[bytes, bytes, str]:
    """Path, query, and the authority of a URL."""
    if target.startswith(b"/") or target == b"*":
        path, _, query = target.partition(b"?")
        return path, query, ""
    try:
        parts = urlsplit(target)
    except ValueError:
        parts = urlsplit(b"")
    if parts.scheme.lower() not in (b"http", b"https") or not parts.netloc:
        raise malformed(f"request target: {target[:100]!r} is neither a path nor an http URL")
    return parts.path or b"/", parts.query, parts.netloc.decode("latin-1")


Headers = Iterable[tuple[str, str]]


def head(status: str, headers: Headers, *, close: bool) -> bytes:
    """``close`` announces the end of the connection."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    lines.append(f"Date: {formatdate(usegmt=True)}")
    if close:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def refusal(refused: RequestRefused) -> bytes:
    body = error_document(refused.code, refused.message, {}, request_id := f"req-{uuid.uuid4()}")
    headers = (
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("X-Openstack-Request-Id", request_id),
        *((("Retry-After", "1"),) if refused.status == HTTPStatus.SERVICE_UNAVAILABLE else ()),
    )
    return head(f"{refused.status} {HTTPStatus(refused.status).phrase}", headers, close=True) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
