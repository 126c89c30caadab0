"""Events on their way to pinner: tried again ever later, and given up in the end."""

import heapq
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from pinner.model.errors import Invalid, NotFound, PinnerError
from pinner.model.event import GuestEventOutcome
from pinner.nova.notification import Notified

LOG = logging.getLogger(__name__)

WORKERS = 4
"""One server that does not answer holds up so many at most."""
MAX_WAITING = 10_000
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds until the next try, doubled after each."""
TRIES = 15
"""Ten minutes in all: a host that is restarted is back by then, and looks for itself."""


@dataclass(order=True)
class _Waiting:
    due: float
    number: int
    notified: Notified = field(compare=False)
    tries: int = field(default=0, compare=False)


class Deliveries:
    """Delivers events in threads of its own. Their order is that of coming as long as all goes well."""

    def __init__(self, send: Callable[[Notified], GuestEventOutcome], give_up: Callable[[Notified, str], None]) -> None:
        """``send`` raises PinnerError; ``give_up`` gets what can or could not be delivered, and why."""
        self._send = send
        self._abort = give_up
        self._numbers = count()
        self._waiting: list[_Waiting] = []
        self._moved = threading.Condition()
        self._open = True
        self._failing: set[str] = set()
        self._threads = [
            threading.Thread(target=self._work, name=f"delivery-{number}", daemon=True) for number in range(WORKERS)
        ]

    def start(self) -> None:
        """Begin to deliver."""
        for thread in self._threads:
            thread.start()

    def add(self, notified: Notified) -> None:
        """Deliver an event soon."""
        with self._moved:
            full = len(self._waiting) >= MAX_WAITING
            if not full:
                heapq.heappush(self._waiting, _Waiting(time.monotonic(), next(self._numbers), notified))
                self._moved.notify()
        if full:
            self._abort(notified, f"{MAX_WAITING} others wait to be delivered")

    def close(self) -> None:
        """Deliver no more; what is under way is waited for, what waits is given up."""
        with self._moved:
            self._open = False
            left, self._waiting = self._waiting, []
            self._moved.notify_all()
        for thread in self._threads:
            thread.join()
        for each in (*left, *self._waiting):
            self._abort(each.notified, "the listener ended before it was delivered")

    def _work(self) -> None:
        while (next_ := self._next()) is not None:
            self._deliver(next_)

    def _next(self) -> _Waiting | None:
        """The next one that is due, waited for; None at the end."""
        with self._moved:
            while self._open:
                left = self._waiting[0].due - time.monotonic() if self._waiting else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._waiting)
                self._moved.wait(left)
            return None

    def _deliver(self, waiting: _Waiting) -> None:
        notified = waiting.notified
        try:
            outcome = self._send(notified)
        except (Invalid, NotFound) as error:
            self._abort(notified, str(error))
        except PinnerError as error:
            self._failed(waiting, error)
        except Exception as error:  # a fault of ours must not end the thread
            LOG.exception("an event of host %s could not be delivered", notified.host)
            self._abort(notified, repr(error))
        else:
            self._took(notified.host)
            if not outcome.known and notified.event.kind != "gone":
                self._abort(notified, f"{notified.event.guest} is no guest of host {notified.host}")

    def _failed(self, waiting: _Waiting, error: PinnerError) -> None:
        waiting.tries += 1
        host = waiting.notified.host
        if waiting.tries >= TRIES:
            self._abort(waiting.notified, f"tried {TRIES} times: {error}")
            return
        with self._moved:
            first = host not in self._failing
            self._failing.add(host)
            waiting.due = time.monotonic() + min(FIRST_RETRY * 2 ** (waiting.tries - 1), LAST_RETRY)
            heapq.heappush(self._waiting, waiting)
            self._moved.notify()
        if first:
            LOG.warning("events of host %s wait and are tried again: %s", host, error)

    def _took(self, host: str) -> None:
        with self._moved:
            again = host in self._failing
            self._failing.discard(host)
        if again:
            LOG.warning("events of host %s are delivered again", host)
