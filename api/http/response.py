"""The bytes of answers."""

import uuid
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

from pinner.api.errors import error_document
from pinner.api.http.request import RequestRefused

Headers = Iterable[tuple[str, str]]


def head(status: str, headers: Headers, *, close: bool) -> bytes:
    """The status line and the headers, with the date; ``close`` announces the end of the connection."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    lines.append(f"Date: {formatdate(usegmt=True)}")
    if close:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def refusal(refused: RequestRefused) -> bytes:
    """The whole answer to a request that the server refuses: pinner's error document."""
    body = error_document(refused.code, refused.message, {}, request_id := f"req-{uuid.uuid4()}")
    headers = (
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("X-Openstack-Request-Id", request_id),
        *((("Retry-After", "1"),) if refused.status == HTTPStatus.SERVICE_UNAVAILABLE else ()),
    )
    return head(f"{refused.status} {HTTPStatus(refused.status).phrase}", headers, close=True) + body


def chunk(data: bytes) -> bytes:
    """A part of a body whose length is not known beforehand (RFC 9112, section 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
