import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime

from pinner.model.event import HostEvent, HostEventKind

CAPACITY = 1024
"""Events kept for a caller that asks seldom; older ones are dropped."""


class HostEventQueue:
    """Events in their order. Any thread may call ``publish``, which never blocks nor raises."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._events: deque[HostEvent] = deque(maxlen=CAPACITY)
        # Milliseconds of the clock are greater than every number of an earlier agent, which published less than one
        # event in a millisecond. If the clock was set back since, ``since`` says that events were lost.
        self._first = self._last = int(now().timestamp() * 1000)
        self._changed = threading.Condition()
        self._open = True
        self._watched: frozenset[str] = frozenset()
        self._on_watched: Callable[[], None] = lambda: None

    @property
    def watched(self) -> frozenset[str]:
        """The process names (comm) whose starts a source publishes."""
        return self._watched

    def on_watched(self, call: Callable[[], None]) -> None:
        self._on_watched = call

    def publish(self, kind: HostEventKind, subject: str, detail: str = "") -> None:
        with self._changed:
            self._last += 1
            self._events.append(HostEvent(self._last, self._now(), kind, subject, detail))
            self._changed.notify_all()

    def since(self, after: int, timeout: float, process_names: tuple[str, ...] | None) -> tuple[HostEvent, ...]:
        if process_names is not None and self._watched != (names := frozenset(process_names)):
            self._watched = names
            self._on_watched()
        with self._changed:
            if after > self._last:
                return (HostEvent(self._last, self._now(), "lost", ""),)
            if 0 < after < self._first:  # a number of an earlier agent: nobody listened until this one began
                return (HostEvent(self._first, self._now(), "lost", ""), *self._events)
            self._changed.wait_for(lambda: not self._open or (self._events and self._events[-1].seq > after), timeout)
            events = tuple(event for event in self._events if event.seq > after)
            if after and events and events[0].seq > after + 1:
                return (HostEvent(events[0].seq - 1, events[0].at, "lost", ""), *events)
            return events

    def close(self) -> None:
        """Ends every wait, also later ones."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
