"""Server-sent events: a run's progress as it happens (WHATWG HTML, section 9.2)."""

import threading
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Any

import pydantic_core
from flask import Response
from werkzeug.exceptions import ServiceUnavailable

from pinner import codec
from pinner.model.errors import PinnerError, document
from pinner.usecases import Progress

MEDIA = "text/event-stream"
MAX_STREAMS = 8
"""Open at once; each holds one of the server's threads (server.THREADS), and the rest must stay free for calls."""
KEEP_ALIVE = 10.0
"""Seconds of silence after which a comment is sent: it shows proxies, and us, that the other side still listens."""

_free = threading.BoundedSemaphore(MAX_STREAMS)


def respond(changes: Iterator[Progress]) -> Response:
    """Send the changes as they come. Raises ServiceUnavailable while too many streams are open."""
    if not _free.acquire(blocking=False):
        raise ServiceUnavailable(f"{MAX_STREAMS} streams are open; ask for the run itself instead", retry_after=5)
    response = Response(_events(changes), mimetype=MEDIA, headers={"Cache-Control": "no-store"})
    response.call_on_close(_free.release)
    return response


def _events(changes: Iterator[Progress]) -> Iterator[bytes]:
    # The changes block until the next one; a thread waits for them, so that silence can be filled.
    arrived: Queue[bytes | None] = Queue()
    threading.Thread(target=_read, args=(changes, arrived), name="run-events", daemon=True).start()
    while True:
        try:
            event = arrived.get(timeout=KEEP_ALIVE)
        except Empty:
            yield b": still running\n\n"
            continue
        if event is None:
            return
        yield event


def _read(changes: Iterator[Progress], arrived: "Queue[bytes | None]") -> None:
    try:
        for progress in changes:
            name = "change" if progress.entry else "end"
            arrived.put(_event(name, codec.dump(progress)))
    except PinnerError as error:
        arrived.put(_event("error", _plain(document(error))))
    finally:
        arrived.put(None)


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _plain(error: dict[str, Any]) -> bytes:
    return pydantic_core.to_json({"error": error}, inf_nan_mode="strings", fallback=repr)
