"""Server-sent events: a run's progress as it happens (WHATWG HTML, section 9.2)."""

import logging
import threading
from collections.abc import Iterator
from queue import Empty, Queue

from flask import Response, g
from werkzeug.exceptions import ServiceUnavailable

from pinner import codec
from pinner.api.errors import UNFORESEEN, write
from pinner.model.errors import PinnerError, document
from pinner.model.journal import RunProgress

LOG = logging.getLogger(__name__)

MEDIA = "text/event-stream"
MAX_STREAMS = 8
"""Open at once; each holds one of the server's threads (server.THREADS), and the rest must stay free for calls."""
KEEP_ALIVE = 10.0
"""Seconds of silence after which a comment is sent: it shows proxies, and us, that the other side still listens."""


class Streams:
    """The open streams of one application."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(MAX_STREAMS)
        self._open: set[_Stream] = set()
        self._closed = False

    def respond(self, changes: Iterator[RunProgress]) -> Response:
        """Send the changes as they come. Raises ServiceUnavailable while too many streams are open."""
        if not self._free.acquire(blocking=False):
            raise ServiceUnavailable(f"{MAX_STREAMS} streams are open; ask for the run itself instead", retry_after=5)
        stream = _Stream(g.request_id)
        self._open.add(stream)
        if self._closed:
            stream.leave()
        # The changes block until the next one; a thread waits for them, so that silence can be filled.
        threading.Thread(target=self._read, args=(stream, changes), name="run-events", daemon=True).start()
        response = Response(stream.events(), mimetype=MEDIA, headers={"Cache-Control": "no-store"})
        response.call_on_close(stream.leave)
        return response

    def close(self) -> None:
        """End every stream, wherever its run is, also those that are asked for later."""
        self._closed = True
        for stream in tuple(self._open):
            stream.leave()

    def _read(self, stream: "_Stream", changes: Iterator[RunProgress]) -> None:
        """A stream's place is free when its run ends or goes on without a listener, not before: so that listeners who
        come and go leave no more than MAX_STREAMS threads behind."""
        try:
            stream.read(changes)
        finally:
            stream.leave()
            self._open.discard(stream)
            self._free.release()


class _Stream:
    """The events between a run and one listener."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._arrived: Queue[bytes | None] = Queue()
        self._left = False

    def leave(self) -> None:
        """Send nothing more after what has arrived."""
        self._left = True
        self._arrived.put(None)

    def events(self) -> Iterator[bytes]:
        """What is sent."""
        # Servers send the head together with the first word: so that the listener knows at once that it is heard.
        yield b": following\n\n"
        while True:
            try:
                event = self._arrived.get(timeout=KEEP_ALIVE)
            except Empty:
                yield b": still running\n\n"
                continue
            if event is None:
                return
            yield event

    def read(self, changes: Iterator[RunProgress]) -> None:
        """Take every change until the run ends or, at the next change, the listener has left."""
        try:
            for progress in changes:
                if self._left:
                    return
                self._put("change" if progress.entry else "end", codec.dump(progress))
        except PinnerError as error:
            self._fail(error)
        except Exception:
            LOG.exception("%s: a run can be followed no further", self._request_id)
            self._fail(PinnerError(UNFORESEEN))

    def _fail(self, error: PinnerError) -> None:
        self._put("error", write(**document(error), request_id=self._request_id))

    def _put(self, name: str, data: bytes) -> None:
        self._arrived.put(b"event: " + name.encode() + b"\ndata: " + data + b"\n\n")
