"""Server-sent events with the progress of a run (WHATWG HTML, section 9.2)."""

import logging
import threading
from collections.abc import Callable, Iterator
from queue import Empty, Queue

from flask import Response, g
from werkzeug.exceptions import ServiceUnavailable

from pinner import codec
from pinner.api.errors import INTERNAL_ERROR, error_document
from pinner.model.errors import PinnerError, document
from pinner.model.run.journal import RunProgress

LOG = logging.getLogger(__name__)

MEDIA = "text/event-stream"
MAX_STREAMS = 8
"""Each open stream occupies one of the server's threads (server.THREADS)."""
KEEP_ALIVE = 10.0
"""Seconds without an event until a comment is sent: proxies keep the connection, and a client that left is noticed."""


class Streams:
    def __init__(self) -> None:
        self._slots = threading.BoundedSemaphore(MAX_STREAMS)
        self._open: set[_Stream] = set()
        self._closed = False

    def respond(self, changes: Iterator[RunProgress]) -> Response:
        """Raises ServiceUnavailable while MAX_STREAMS are open."""
        if not self._slots.acquire(blocking=False):
            raise ServiceUnavailable(
                f"{MAX_STREAMS} streams are open, which is the limit; ask for the run without its events", retry_after=5
            )
        stream = _Stream(g.request_id, self._slots.release)
        self._open.add(stream)
        if self._closed:
            stream.close()
        # The iterator blocks until the next change. A thread waits for it, so that comments can be sent meanwhile.
        threading.Thread(target=self._read, args=(stream, changes), name="run-events", daemon=True).start()
        response = Response(stream.events(), mimetype=MEDIA, headers={"Cache-Control": "no-store"})
        response.call_on_close(stream.sent)
        return response

    def close(self) -> None:
        self._closed = True
        for stream in tuple(self._open):
            stream.close()

    def _read(self, stream: "_Stream", changes: Iterator[RunProgress]) -> None:
        """Free the stream's slot after this thread has ended, so that at most MAX_STREAMS threads are left, and after
        the client has received everything: a slow one occupies a thread of the server."""
        try:
            stream.read(changes)
        finally:
            stream.close()
            self._open.discard(stream)
            stream.end_part()


class _Stream:
    def __init__(self, request_id: str, release: Callable[[], None]) -> None:
        """``release`` is called once: the changes are read, and the answer is sent or its client has gone."""
        self._request_id = request_id
        self._release = release
        self._parts = 2
        self._guard = threading.Lock()
        self._events: Queue[bytes | None] = Queue()
        self._closed = False

    def close(self) -> None:
        """The queued events are still sent."""
        self._closed = True
        self._events.put(None)

    def sent(self) -> None:
        self.close()
        self.end_part()

    def end_part(self) -> None:
        """Called twice: after the reading of the changes, and after the answer."""
        with self._guard:
            self._parts -= 1
            ended = self._parts == 0
        if ended:
            self._release()

    def events(self) -> Iterator[bytes]:
        # Servers send the headers together with the first bytes. This comment sends them at once.
        yield b": following\n\n"
        while True:
            try:
                event = self._events.get(timeout=KEEP_ALIVE)
            except Empty:
                yield b": still running\n\n"
                continue
            if event is None:
                return
            yield event

    def read(self, changes: Iterator[RunProgress]) -> None:
        try:
            for progress in changes:
                if self._closed:
                    return
                self._put("change" if progress.entry else "end", codec.dump(progress))
        except PinnerError as error:
            self._fail(error)
        except Exception:
            LOG.exception("%s: following a run failed", self._request_id)
            self._fail(PinnerError(INTERNAL_ERROR))

    def _fail(self, error: PinnerError) -> None:
        self._put("error", error_document(**document(error), request_id=self._request_id))

    def _put(self, name: str, data: bytes) -> None:
        self._events.put(b"event: " + name.encode() + b"\ndata: " + data + b"\n\n")
