"""Delivers Nova's events to pinner servers, with retries, else to the quarantine."""

import heapq
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from cachetools import LRUCache

from pinner.model.doubling import doubled
from pinner.model.errors import HostUnreachable, Invalid, NotFound, PinnerError
from pinner.model.event import GuestEventOutcome
from pinner.nova.broker.notification import NovaEvent
from pinner.repeated import Repeated
from pinner.worker import BeatingThread, Heartbeat

LOG = logging.getLogger(__name__)

WORKERS = 48
"""Threads that send events; they mostly wait for servers."""
WORKERS_PER_HOST = 8
WORKERS_IN_DOUBT = 36
"""Threads for the hosts that are not known to answer, one a host; half as many for those whose latest event failed."""
MAX_QUEUED = 10_000
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds; doubled after each attempt."""
HANGS_SECONDS = 300.0
"""A delivery asks up to two servers, and waits half a minute for each."""
MAX_HOSTS = 10_000
"""Remembered ones: any program with access to the broker can send events of any number of hosts."""
SILENT_SECONDS = 60.0
"""How long a host that did not answer is told nothing more about guests that are gone."""
_BEAT_SECONDS = 10.0
_IN_DOUBT = (WORKERS, WORKERS_IN_DOUBT, WORKERS_IN_DOUBT // 2)
"""For hosts that answer, that are new, and whose latest event failed."""
MAX_ATTEMPTS = 15
"""They take nine minutes or more: a restarted host runs by then, and its pinner checks it."""


@dataclass(order=True)
class _QueuedEvent:
    due: float
    number: int
    event: NovaEvent = field(compare=False)
    attempts: int = field(default=0, compare=False)


class DeliveryQueue:
    """Without retries, events are sent in the order of arrival."""

    def __init__(
        self, send: Callable[[NovaEvent], GuestEventOutcome], quarantine: Callable[[NovaEvent, str], None]
    ) -> None:
        """``send`` may raise PinnerError. ``quarantine`` also gets the reason."""
        self._send = send
        self._quarantine = quarantine
        self._numbers = count()
        self._queues: defaultdict[str, list[_QueuedEvent]] = defaultdict(list)
        self._waiting = 0
        self._firsts: dict[int, list[tuple[float, int, str]]] = {workers: [] for workers in _IN_DOUBT}
        """When each host's first event is due, its number and the host, as heaps by the threads that the host may use.
        An outdated entry stays until it is the first one."""
        self._sending: Counter[str] = Counter()
        """Threads by host."""
        self._changed = threading.Condition()
        self._open = True
        self._ignored = Repeated(LOG)
        self._silent: LRUCache[str, float] = LRUCache(MAX_HOSTS)
        """The hosts that did not answer to a guest's end, and when. It is not repeated: all guests may be evacuated."""
        self._answering: LRUCache[str, float] = LRUCache(MAX_HOSTS)
        """The hosts that answered the latest event, and when."""
        self._failing: LRUCache[str, float] = LRUCache(MAX_HOSTS)
        """The hosts whose latest event failed, and when."""
        self._threads = [
            BeatingThread(partial(self._work, number), f"delivery-{number}", HANGS_SECONDS) for number in range(WORKERS)
        ]
        self.heartbeats = [thread.heartbeat for thread in self._threads]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, event: NovaEvent) -> None:
        with self._changed:
            full = self._waiting >= MAX_QUEUED
            if not full:
                self._put(_QueuedEvent(time.monotonic(), next(self._numbers), event))
        if full:
            self._quarantine(event, f"the queue is full: {MAX_QUEUED} events wait to be delivered")

    def close(self) -> None:
        """Current events are still sent; queued ones go to the quarantine."""
        for heartbeat in self.heartbeats:
            heartbeat.end()
        with self._changed:
            self._open = False
            queued = self._take_all()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        # A thread may have queued an event for a retry in the meantime.
        for queued_event in (*queued, *self._take_all()):
            self._quarantine(queued_event.event, "the listener ended before it was delivered")

    def _work(self, number: int) -> None:
        while (queued := self._next(self.heartbeats[number])) is not None:
            try:
                self._deliver(queued)
            except Exception:  # an error in this program must not end the thread
                LOG.exception("an event of host %s is lost", queued.event.host)
            finally:
                self._end(queued.event.host)

    def _put(self, queued: _QueuedEvent) -> None:
        host = queued.event.host
        heapq.heappush(self._queues[host], queued)
        self._waiting += 1
        if self._queues[host][0] is queued:
            self._offer(host)
        self._changed.notify()

    def _take_all(self) -> list[_QueuedEvent]:
        taken = [event for queue in self._queues.values() for event in queue]
        self._queues.clear()
        self._waiting = 0
        return taken

    def _first(self) -> _QueuedEvent | None:
        """Of the hosts that have a thread left. Its cost does not grow with the hosts."""
        in_doubt = sum(number for host, number in self._sending.items() if host not in self._answering)
        firsts = [self._valid(workers) for workers in _IN_DOUBT if workers == WORKERS or in_doubt < workers]
        return min(filter(None, firsts), default=None)

    def _valid(self, workers: int) -> _QueuedEvent | None:
        heap = self._firsts[workers]
        while heap:
            due, number, host = heap[0]
            first = self._queues[host][0] if host in self._queues else None
            is_first = first is not None and (first.due, first.number) == (due, number)
            if is_first and self._has_thread(host) and self._workers(host) == workers:
                return first
            heapq.heappop(heap)
            if is_first:
                self._offer(host)
        return None

    def _offer(self, host: str) -> None:
        if host in self._queues and self._has_thread(host):
            first = self._queues[host][0]
            heapq.heappush(self._firsts[self._workers(host)], (first.due, first.number, host))

    def _workers(self, host: str) -> int:
        if host in self._answering:
            return WORKERS
        return WORKERS_IN_DOUBT // (2 if host in self._failing else 1)

    def _has_thread(self, host: str) -> bool:
        return self._sending.get(host, 0) < (WORKERS_PER_HOST if host in self._answering else 1)

    def _take(self, first: _QueuedEvent) -> None:
        host = first.event.host
        heapq.heappop(self._queues[host])
        if not self._queues[host]:
            del self._queues[host]
        self._waiting -= 1
        self._sending[host] += 1
        self._offer(host)

    def _end(self, host: str) -> None:
        with self._changed:
            self._sending[host] -= 1
            if not self._sending[host]:
                del self._sending[host]
            self._offer(host)
            self._changed.notify()

    def _next(self, heartbeat: Heartbeat) -> _QueuedEvent | None:
        with self._changed:
            while self._open:
                heartbeat.beat()
                first = self._first()
                delay = first.due - time.monotonic() if first else _BEAT_SECONDS
                if first and delay <= 0:
                    self._take(first)
                    return first
                self._changed.wait(min(delay, _BEAT_SECONDS))
            return None

    def _deliver(self, queued: _QueuedEvent) -> None:
        event = queued.event
        if event.guest_event.kind == "gone" and self._is_silent(event.host):
            return
        try:
            outcome = self._send(event)
        except (Invalid, NotFound) as error:
            self._quarantine(event, str(error))
        except PinnerError as error:
            self._note(event.host, answered=not isinstance(error, HostUnreachable))
            if event.guest_event.kind == "gone":
                with self._changed:
                    self._silent[event.host] = time.monotonic()
                LOG.info("host %s was not told that guest %s is gone: %s", event.host, event.guest_event.guest, error)
            else:
                self._retry_later(queued, error)
        except Exception as error:
            LOG.exception("an event of host %s could not be delivered", event.host)
            self._quarantine(event, repr(error))
        else:
            self._note(event.host, answered=True)
            self._host_works(event.host)
            if not outcome.known and event.guest_event.kind != "gone":
                self._quarantine(event, f"{event.guest_event.guest} is no guest of host {event.host}")
            if outcome.ignored:
                what = f"guest {event.guest_event.guest}, {event.guest_event.event}"
                self._ignored.warn("host %s: %s was ignored: %s", event.host, what, outcome.ignored)

    def _is_silent(self, host: str) -> bool:
        with self._changed:
            return time.monotonic() < self._silent.get(host, 0.0) + SILENT_SECONDS

    def _retry_later(self, queued: _QueuedEvent, error: PinnerError) -> None:
        """If the host did not answer, this attempt counts for all its due events."""
        host = queued.event.host
        with self._changed:
            first = host not in self._failing
            self._failing[host] = time.monotonic()
            failed = [queued, *(self._take_due(host) if isinstance(error, HostUnreachable) else ())]
            for event in failed:
                event.attempts += 1
                if event.attempts < MAX_ATTEMPTS:
                    event.due = time.monotonic() + doubled(FIRST_RETRY, event.attempts - 1, LAST_RETRY)
                    self._put(event)
        for event in failed:
            if event.attempts >= MAX_ATTEMPTS:
                self._quarantine(event.event, f"{MAX_ATTEMPTS} attempts failed: {error}")
        if first:
            LOG.warning("events of host %s wait for a retry: %s", host, error)

    def _take_due(self, host: str) -> list[_QueuedEvent]:
        now = time.monotonic()
        taken: list[_QueuedEvent] = []
        waiting: list[_QueuedEvent] = []
        for event in self._queues.pop(host, []):
            (taken if event.due <= now and event.event.guest_event.kind != "gone" else waiting).append(event)
        self._waiting -= len(taken)
        if waiting:
            heapq.heapify(waiting)
            self._queues[host] = waiting
            self._offer(host)
        return taken

    def _note(self, host: str, *, answered: bool) -> None:
        with self._changed:
            if answered:
                self._answering[host] = time.monotonic()
                self._offer(host)
                # The host has more threads now: its other events need not wait for the end of this one.
                self._changed.notify_all()
            else:
                self._answering.pop(host, None)

    def _host_works(self, host: str) -> None:
        with self._changed:
            was_failing = host in self._failing
            self._failing.pop(host, None)
        if was_failing:
            LOG.warning("events of host %s are delivered again", host)
