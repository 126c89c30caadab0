import logging
import time
from collections.abc import Callable, Collection, Iterable, Set
from contextlib import suppress
from datetime import datetime
from math import ceil
from typing import Protocol

from pinner.agent.socket.peers import require_caller
from pinner.model.errors import Invalid, NotFound, PinnerError, StoreUnavailable
from pinner.model.outcome.measures import ROWS, Counts, History, Measured, measured, series_of
from pinner.repeated import Repeated
from pinner.worker import Worker

LOG = logging.getLogger(__name__)

SECONDS = min(ROWS)

_PURGE_COUNTS = 3600 // SECONDS
MAX_SUM = 1_000_000
"""Values in one answer: an hour of 77 guests in the finest step, or of 1,388 guests in one series; 90 MiB."""
_LIMIT_SECONDS = 120.0


class Meter(Protocol):
    def __call__(self) -> tuple[Counts, ...]:
        """Raises libvirt's errors, and OSError."""


class Kept(Protocol):
    def write(self, measured: Iterable[Measured], at: datetime) -> None: ...

    def read(
        self, subject: str, begin: datetime, end: datetime, step: int, name: str = "", series: Collection[str] = ()
    ) -> History: ...

    def subjects(self, since: datetime) -> tuple[str, ...]:
        """Those with a value of this time or later."""

    def purge(self, at: datetime, running: Set[str]) -> None: ...


class Recorder(Worker):
    def __init__(self, meter: Meter, kept: Kept, now: Callable[[], datetime], *, seconds: float = SECONDS) -> None:
        super().__init__("recorder of measures", _LIMIT_SECONDS)
        self._meter = meter
        self._seconds = seconds
        self._kept = kept
        self._now = now
        self._before: dict[str, Counts] = {}
        self._names: dict[str, str] = {}
        self._counted: set[str] = set()
        """The subjects counted since the last purge: while libvirtd starts, it may list no guests."""
        self._failures = Repeated(LOG)

    def join(self) -> None:
        self._thread.join()

    def record(self) -> tuple[Measured, ...]:
        """A subject's first count gives no values."""
        counts = {count.subject: count for count in self._meter()}
        values = tuple(measured(self._before[count], counts[count]) for count in counts if count in self._before)
        self._before = counts
        self._counted |= counts.keys()
        self._names = {subject: count.name for subject, count in counts.items()}
        self._kept.write(values, self._now())
        return values

    def measures(
        self, begin: datetime, end: datetime, step: int, subject: str = "", series: tuple[str, ...] = ()
    ) -> tuple[History, ...]:
        """As Agent.measures. A guest is found by its name unless a subject is named so. Of all subjects, unreadable
        ones, and those without one of the series or a value since ``begin``, are left out."""

        def read(subject: str) -> History:
            return self._kept.read(subject, begin, end, step, self._names.get(subject, ""), series)

        if subject:
            if subject not in self._names:
                with suppress(NotFound, Invalid):  # no guest that has ended, either
                    return (read(subject),)
                subject = next((known for known, name in self._names.items() if name and name == subject), subject)
            return (read(subject),)
        histories = []
        wanted = {known_subject: len(series_of(known_subject, series)) for known_subject in self._kept.subjects(begin)}
        if (values := sum(wanted.values()) * ceil((end - begin).total_seconds() / step)) > MAX_SUM:
            less = "a longer step, a shorter span, fewer series, or one guest"
            raise Invalid("step", step, f"{less}: {values} values are too many, at most {MAX_SUM} are answered")
        for known_subject in (known_subject for known_subject, count in wanted.items() if count):
            require_caller()
            try:
                histories.append(read(known_subject))
            except (NotFound, StoreUnavailable) as error:
                LOG.warning("measures are left out: %s", error)
        return tuple(histories)

    def purge(self) -> None:
        """Call it after many counts: just after a boot, guests may not run yet."""
        self._kept.purge(self._now(), frozenset(self._counted))
        self._counted = set(self._before)

    def _repeat(self) -> None:
        due, count = time.monotonic(), 0
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            self.heartbeat.beat()
            try:
                self.record()
                count += 1
                if count % _PURGE_COUNTS == 0:
                    self.purge()
                self._failures.over("the host is measured again")
            except (PinnerError, OSError, MemoryError) as error:
                self._failures.warn("the host is not measured: %s", str(error) or "no memory is left")
            due += self._seconds
            if due < time.monotonic():  # late: a count at once would measure an interval of almost no length
                due = time.monotonic() + self._seconds
