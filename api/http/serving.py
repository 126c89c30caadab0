"""Serves an application: listeners, open connections and deadlines in the event loop, answers in worker threads."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

from pinner.api.errors import INTERNAL_ERROR
from pinner.api.http import messages
from pinner.api.http.connection import Connection
from pinner.api.http.messages import HttpRequest, RequestRefused, environ
from pinner.api.http.reader import ClientLimits
from pinner.model.errors import PinnerError
from pinner.model.health import Queue
from pinner.repeated import Repeated

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

LOG = logging.getLogger(__name__)
HEALTH = (b"/healthcheck", b"/healthcheck/live", b"/healthcheck/ready")
"""A thread of its own answers these paths, even while all other threads wait for hosts."""
_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_TICK = 0.25
BACKLOG = 512
"""Connections that the kernel accepts before the server does (listen(2))."""
STOP_SECONDS = 5.0
"""The time in which answers that are on their way may be read after a stop."""


class Serving:
    """All methods but ``__init__`` and ``close`` run in the event loop."""

    def __init__(
        self, app: "WSGIApplication", limits: ClientLimits, threads: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.limits = limits
        self.loop = loop
        self.ending = False
        self._app = app
        self._connections: set[Connection] = set()
        self._listeners: list[asyncio.Server] = []
        self._on_tick: Callable[[], None] = lambda: None
        self._failing = Repeated(LOG)
        self._numbers = count()
        self._waiting: dict[int, float] = {}
        loop.set_exception_handler(self._report)
        self._workers = ThreadPoolExecutor(threads, "api")
        self._health = ThreadPoolExecutor(1, "api-health")

    def on_tick(self, call: Callable[[], None]) -> None:
        self._on_tick = call

    async def listen(self, sockets: Sequence[socket.socket], tls: ssl.SSLContext | None) -> None:
        for bound in sockets:
            context = None if bound.family == socket.AF_UNIX else tls

            def connection(context: ssl.SSLContext | None = context) -> Connection:
                return Connection(self, context)

            self._listeners.append(await self.loop.create_server(connection, sock=bound, backlog=BACKLOG))
        self._tick()

    def admit(self, connection: Connection) -> bool:
        """At the limit, drop the connection whose client takes longest. False: there is none, or the server stops."""
        if self.ending:
            return False
        if len(self._connections) >= self.limits.connections:
            waiting = [known for known in self._connections if known.waits]
            if not waiting:
                LOG.warning("%d connections wait for answers; a new one was closed", len(self._connections))
                return False
            min(waiting, key=lambda known: known.since).abort()
        self._connections.add(connection)
        self._failing.over("the API accepts clients again")
        return True

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def submit(self, connection: Connection, request: HttpRequest) -> None:
        """Even the refusal of another method than GET would wait for the database."""
        is_health = request.target.partition(b"?")[0] in HEALTH and request.method in ("GET", "HEAD")
        threads = self._health if is_health else self._workers
        number = next(self._numbers)
        self._waiting[number] = self.loop.time()
        threads.submit(self._answer, number, connection, request)

    def queue(self) -> Queue:
        """Any thread may call it."""
        waiting = sorted(self._waiting.values())
        return Queue(len(waiting), self.loop.time() - waiting[0]) if waiting else Queue()

    def _answer(self, number: int, connection: Connection, request: HttpRequest) -> None:
        del self._waiting[number]
        answer(self._app, connection, request, self.loop)

    async def accept_no_more(self) -> None:
        self.ending = True
        await self._close_listeners()
        for connection in tuple(self._connections):
            connection.end()

    async def end(self) -> None:
        """Also ends a connection without an answer, because its worker had no memory."""
        deadline = self.loop.time() + STOP_SECONDS
        while any(not connection.answered for connection in self._connections) and self.loop.time() < deadline:
            await asyncio.sleep(0.02)
        for connection in tuple(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # the transports close their sockets in the loop's next round

    async def _close_listeners(self) -> None:
        """asyncio takes two rounds of the loop for an accepted client: closed before, its socket stays open."""
        for listener in self._listeners:
            for bound in listener.sockets:
                self.loop.remove_reader(bound)
        for _ in range(2):
            await asyncio.sleep(0)
        for listener in self._listeners:
            listener.close()

    def close(self) -> None:
        self._workers.shutdown()
        self._health.shutdown()

    def _tick(self) -> None:
        """A failure at one connection must not end the deadlines of all others."""
        self.loop.call_later(_TICK, self._tick)
        self._on_tick()
        now = self.loop.time()
        for connection in tuple(self._connections):
            if connection.deadline < now:
                try:
                    connection.expire()
                except Exception:
                    LOG.exception("a connection could not be ended in time; it is dropped")
                    connection.abort()
        self._bound_held()

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Without a file descriptor, asyncio reports an error for each of BACKLOG attempts, again each second."""
        if isinstance(error := context.get("exception"), OSError) and error.errno in _NO_RESOURCES:
            self._failing.warn("a client of the API cannot be accepted: %s", error)
        else:
            loop.default_exception_handler(context)

    def _bound_held(self) -> None:
        held = {connection: connection.held for connection in self._connections}
        total, dropped = sum(held.values()), 0
        for connection in sorted(held, key=held.__getitem__, reverse=True):
            if total <= self.limits.held_bytes:
                break
            connection.abort()
            total -= held[connection]
            dropped += 1
        if dropped:
            LOG.warning(
                "more than %d bytes wait for clients; %d connections were dropped", self.limits.held_bytes, dropped
            )


class _Head:
    def __init__(self) -> None:
        self.status = ""
        self.headers: list[tuple[str, str]] = []

    def start_response(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[..., None]:  # noqa: ARG002
        """A later call replaces an earlier one (PEP 3333): nothing is sent before the body begins."""
        self.status, self.headers = status, headers
        return _no_write

    @property
    def streams(self) -> bool:
        bodiless = self.status.startswith(("1", "204", "304"))
        return not bodiless and not any(name.lower() == "content-length" for name, _ in self.headers)


def answer(
    app: "WSGIApplication", connection: Connection, request: HttpRequest, loop: asyncio.AbstractEventLoop
) -> None:
    """The application never sees a request whose client has gone."""
    data, keep_alive = b"", False
    try:
        if not connection.lost:
            data, keep_alive = _whole(app, connection, request, loop)
    finally:  # also without the memory for a refusal: then the connection ends without one
        loop.call_soon_threadsafe(lambda: connection.finish(data, keep_alive=keep_alive))


def _whole(
    app: "WSGIApplication", connection: Connection, request: HttpRequest, loop: asyncio.AbstractEventLoop
) -> tuple[bytes, bool]:
    try:
        return _answer(app, connection, request, loop)
    except RequestRefused as refused:
        return messages.refusal(refused), False
    except ConnectionResetError:
        LOG.info("%s %r: the client has gone", request.method, request.target[:100])
        return b"", False
    except Exception:
        LOG.exception("%s %r failed", request.method, request.target[:100])
        return messages.refusal(RequestRefused(500, "internal", INTERNAL_ERROR)), False


def _answer(
    app: "WSGIApplication", connection: Connection, request: HttpRequest, loop: asyncio.AbstractEventLoop
) -> tuple[bytes, bool]:
    """The answer or its last part; whether the connection can serve another request."""
    head = _Head()
    body = app(environ(request, connection.ends), head.start_response)
    try:
        if request.method != "HEAD" and head.streams:
            return _stream(head, body, connection, request, loop)
        keep_alive = request.keep_alive
        return messages.head(head.status, head.headers, close=not keep_alive) + b"".join(body), keep_alive
    finally:
        close = getattr(body, "close", None)
        if close is not None:
            close()


def _stream(
    head: _Head, body: Iterable[bytes], connection: Connection, request: HttpRequest, loop: asyncio.AbstractEventLoop
) -> tuple[bytes, bool]:
    """Raises ConnectionResetError where the client has gone. HTTP/1.0 has no chunks: the end of the connection ends the
    body. An answer that fails midway ends without the last chunk, so the client learns it."""
    chunked = request.version == "1.1"
    headers = [*head.headers, *([("Transfer-Encoding", "chunked")] if chunked else [])]

    def send(data: bytes) -> None:
        asyncio.run_coroutine_threadsafe(connection.send(data), loop).result()

    waiting = messages.head(head.status, headers, close=True)
    try:
        for part in body:
            if part:
                send(waiting + (messages.chunk(part) if chunked else part))
                waiting = b""
    except ConnectionResetError:
        raise
    except Exception as error:
        if waiting:
            raise
        expected = isinstance(error, PinnerError)
        LOG.error("%s %r broke off: %s", request.method, request.target[:100], error, exc_info=not expected)
        return b"", False
    return waiting + (messages.LAST_CHUNK if chunked else b""), False


def _no_write(_data: bytes) -> None:
    raise NotImplementedError("the write function of start_response (PEP 3333) is for old applications only")
