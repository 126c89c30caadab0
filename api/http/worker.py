"""Answers one request with a WSGI application, in a worker thread."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pinner.api.errors import INTERNAL_ERROR
from pinner.api.http import response
from pinner.api.http.connection import Connection
from pinner.api.http.request import HttpRequest, RequestRefused, environ

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

LOG = logging.getLogger(__name__)


class _Head:
    """The status and headers that the application gives to ``start_response``."""

    def __init__(self) -> None:
        self.status = ""
        self.headers: list[tuple[str, str]] = []

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[..., None]:  # noqa: ARG002
        """See PEP 3333. Nothing is sent before the body begins, so a later call replaces an earlier one."""
        self.status, self.headers = status, headers
        return _no_write

    @property
    def streams(self) -> bool:
        """Whether the length of the body is unknown, so that its parts are sent as they come."""
        bodiless = self.status.startswith(("1", "204", "304"))
        return not bodiless and not any(name.lower() == "content-length" for name, _ in self.headers)


def answer(
    app: "WSGIApplication", connection: Connection, request: HttpRequest, loop: asyncio.AbstractEventLoop
) -> None:
    """Answer the request, unless its client has gone: then the application never sees it."""
    data, keep_alive = b"", False
    try:
        if not connection.lost:
            data, keep_alive = _whole(app, connection, request, loop)
    finally:  # also without the memory for a refusal: then the connection ends without one
        loop.call_soon_threadsafe(lambda: connection.finish(data, keep_alive=keep_alive))


def _whole(
    app: "WSGIApplication", connection: Connection, request: HttpRequest, loop: asyncio.AbstractEventLoop
) -> tuple[bytes, bool]:
    """As ``_answer``, but an error is answered, too."""
    try:
        return _answer(app, connection, request, loop)
    except RequestRefused as refused:
        return response.refusal(refused), False
    except ConnectionResetError:
        LOG.info("%s %r: the client has gone", request.method, request.target[:100])
        return b"", False
    except Exception:
        LOG.exception("%s %r failed", request.method, request.target[:100])
        return response.refusal(RequestRefused(500, "internal", INTERNAL_ERROR)), False


def _answer(
    app: "WSGIApplication", connection: Connection, request: HttpRequest, loop: asyncio.AbstractEventLoop
) -> tuple[bytes, bool]:
    """The answer, or its last part, and whether the connection can serve another request."""
    head = _Head()
    body = app(environ(request, connection.ends), head.start_response)
    try:
        if request.method != "HEAD" and head.streams:
            return _stream(head, body, connection, request, loop)
        keep_alive = request.keep_alive
        return response.head(head.status, head.headers, close=not keep_alive) + b"".join(body), keep_alive
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()


def _stream(
    head: _Head, body: Iterable[bytes], connection: Connection, request: HttpRequest, loop: asyncio.AbstractEventLoop
) -> tuple[bytes, bool]:
    """Send the parts of a body as they come. Raises ConnectionResetError where the client has gone.

    HTTP/1.0 has no chunks: there the end of the connection is the end of the body.
    """
    chunked = request.version == "1.1"
    headers = [*head.headers, *([("Transfer-Encoding", "chunked")] if chunked else [])]

    def send(data: bytes) -> None:
        asyncio.run_coroutine_threadsafe(connection.send(data), loop).result()

    waiting = response.head(head.status, headers, close=True)
    for part in body:
        if part:
            send(waiting + (response.chunk(part) if chunked else part))
            waiting = b""
    return waiting + (response.LAST_CHUNK if chunked else b""), False


def _no_write(_data: bytes) -> None:
    raise NotImplementedError("the write function of start_response (PEP 3333) is for old applications only")
