"""Where a host's news is gathered: its sources tell, the agent's callers wait."""

import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime

from pinner.model.event import HostEvent, HostEventKind

KEPT = 1024
"""How many news are kept for a caller that is slow to ask."""


class HostEventQueue:
    """News in their order. Sources call ``tell`` from threads of their own; it never blocks and never raises."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._kept: deque[HostEvent] = deque(maxlen=KEPT)
        # The clock's milliseconds are ahead of every number that an earlier agent gave: less than one news each.
        self._last = int(now().timestamp() * 1000)
        self._moved = threading.Condition()
        self._open = True
        self._watched: frozenset[str] = frozenset()
        self._on_watched: Callable[[], None] = lambda: None

    @property
    def watched(self) -> frozenset[str]:
        """The process names (comm) whose births are asked for; of others a source tells nothing."""
        return self._watched

    def on_watched(self, call: Callable[[], None]) -> None:
        """Have ``call`` called whenever other names are asked for."""
        self._on_watched = call

    def publish(self, kind: HostEventKind, subject: str, detail: str = "") -> None:
        """Something happened just now; see NewsKind."""
        with self._moved:
            self._last += 1
            self._kept.append(HostEvent(self._last, self._now(), kind, subject, detail))
            self._moved.notify_all()

    def since(self, after: int, timeout: float, names: tuple[str, ...]) -> tuple[HostEvent, ...]:
        """See Agent.news."""
        if self._watched != (asked := frozenset(names)):
            self._watched = asked
            self._on_watched()
        with self._moved:
            self._moved.wait_for(lambda: self._has_newer(after) or not self._open, timeout)
            found = tuple(event for event in self._kept if event.seq > after)
            if after and found and found[0].seq > after + 1:
                return (HostEvent(found[0].seq - 1, found[0].at, "lost", ""), *found)
            return found

    def close(self) -> None:
        """Let everybody go who waits, now and from now on."""
        with self._moved:
            self._open = False
            self._moved.notify_all()

    def _has_newer(self, after: int) -> bool:
        return bool(self._kept) and self._kept[-1].seq > after
