"""Delivery of Nova's events to pinner servers, with retries. Events that cannot be delivered go to the quarantine."""

import heapq
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from pinner.heartbeat import Heartbeat
from pinner.model.errors import Invalid, NotFound, PinnerError
from pinner.model.event import GuestEventOutcome
from pinner.nova.notification import NovaEvent

LOG = logging.getLogger(__name__)

WORKERS = 4
"""Threads that send events. Each can be blocked by one server that does not answer."""
MAX_QUEUED = 10_000
"""Events that may wait at the same time."""
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds before the first and before the last retry. The delay doubles after each attempt."""
HANGS_SECONDS = 300.0
"""A delivery asks up to two servers, and waits half a minute for each answer."""
_BEAT_SECONDS = 10.0
MAX_ATTEMPTS = 15
"""About ten minutes in all. A host that was restarted runs again by then, and its pinner checks the host by itself."""


@dataclass(order=True)
class _QueuedEvent:
    due: float
    number: int
    event: NovaEvent = field(compare=False)
    attempts: int = field(default=0, compare=False)


class DeliveryQueue:
    """A queue of events and the threads that deliver them. Without retries, events are sent in the order of arrival."""

    def __init__(
        self, send: Callable[[NovaEvent], GuestEventOutcome], quarantine: Callable[[NovaEvent, str], None]
    ) -> None:
        """``send`` may raise PinnerError. ``quarantine`` gets each event that cannot be delivered, and the reason."""
        self._send = send
        self._quarantine = quarantine
        self._numbers = count()
        self._queue: list[_QueuedEvent] = []
        self._changed = threading.Condition()
        self._open = True
        self._failing: set[str] = set()
        """The hosts whose latest event failed."""
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"delivery-{number}", daemon=True)
            for number in range(WORKERS)
        ]
        self.heartbeats = [Heartbeat(thread, HANGS_SECONDS) for thread in self._threads]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def add(self, event: NovaEvent) -> None:
        """Queue an event. A full queue sends it to the quarantine."""
        with self._changed:
            full = len(self._queue) >= MAX_QUEUED
            if not full:
                heapq.heappush(self._queue, _QueuedEvent(time.monotonic(), next(self._numbers), event))
                self._changed.notify()
        if full:
            self._quarantine(event, f"the queue is full: {MAX_QUEUED} events wait to be delivered")

    def close(self) -> None:
        """Stop the threads after their current events, and send the queued events to the quarantine."""
        for heartbeat in self.heartbeats:
            heartbeat.end()
        with self._changed:
            self._open = False
            queued, self._queue = self._queue, []
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        # A thread may have queued an event for a retry in the meantime.
        for each in (*queued, *self._queue):
            self._quarantine(each.event, "the listener ended before it was delivered")

    def _work(self, number: int) -> None:
        while (queued := self._next(self.heartbeats[number])) is not None:
            self._deliver(queued)

    def _next(self, heartbeat: Heartbeat) -> _QueuedEvent | None:
        """Wait for the next event that is due; None after close()."""
        with self._changed:
            while self._open:
                heartbeat.beat()
                delay = self._queue[0].due - time.monotonic() if self._queue else _BEAT_SECONDS
                if delay <= 0:
                    return heapq.heappop(self._queue)
                self._changed.wait(min(delay, _BEAT_SECONDS))
            return None

    def _deliver(self, queued: _QueuedEvent) -> None:
        event = queued.event
        try:
            outcome = self._send(event)
        except (Invalid, NotFound) as error:
            self._quarantine(event, str(error))
        except PinnerError as error:
            self._retry_later(queued, error)
        except Exception as error:  # an error in this program must not end the thread
            LOG.exception("an event of host %s could not be delivered", event.host)
            self._quarantine(event, repr(error))
        else:
            self._host_answered(event.host)
            if not outcome.known and event.guest_event.kind != "gone":
                self._quarantine(event, f"{event.guest_event.guest} is no guest of host {event.host}")

    def _retry_later(self, queued: _QueuedEvent, error: PinnerError) -> None:
        """Queue the event for its next attempt, or send it to the quarantine after the last one."""
        queued.attempts += 1
        host = queued.event.host
        if queued.attempts >= MAX_ATTEMPTS:
            self._quarantine(queued.event, f"{MAX_ATTEMPTS} attempts failed: {error}")
            return
        with self._changed:
            first = host not in self._failing
            self._failing.add(host)
            queued.due = time.monotonic() + min(FIRST_RETRY * 2 ** (queued.attempts - 1), LAST_RETRY)
            heapq.heappush(self._queue, queued)
            self._changed.notify()
        if first:
            LOG.warning("events of host %s wait for a retry: %s", host, error)

    def _host_answered(self, host: str) -> None:
        """Log the first delivery after failures."""
        with self._changed:
            was_failing = host in self._failing
            self._failing.discard(host)
        if was_failing:
            LOG.warning("events of host %s are delivered again", host)
