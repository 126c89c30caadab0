"""The hosts that this process serves: an agent for each."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from pinner.agent.protocol import Agent
from pinner.model.errors import Invalid, NotFound, Overloaded, StoreUnavailable
from pinner.model.machine.topology import Topology
from pinner.model.outcome.blame import Blame
from pinner.model.reading import HostReading
from pinner.model.snapshot import Snapshot
from pinner.planning.policy.event_order import with_guest_hints
from pinner.store.guest_hints import GuestHints

LOG = logging.getLogger(__name__)

MEASUREMENTS = 4
"""Simultaneous measurements of one host's CPU use."""
MEASURING_CALLERS = 8
"""Each occupies a thread of the server for the time of the sample."""
OBSERVING_CALLERS = 12
"""Each occupies a thread of the server; callers who read only the database need the others."""
PLACE_SECONDS = 1.0
"""The longest wait until fewer than OBSERVING_CALLERS observe hosts."""
RETRY_SECONDS = 5


class Hosts:
    def __init__(
        self,
        agents: Mapping[str, Agent],
        hints: GuestHints,
        now: Callable[[], datetime],
        observed: Callable[[str, float], None] = lambda *_: None,
        *,
        migration: timedelta,
    ) -> None:
        """``observed`` gets the host and the seconds of each scan."""
        self._observed = observed
        self._agents = dict(agents)
        self._hints = hints
        self._now = now
        self._migration = migration
        self._scans = {host: SharedCalls[Snapshot](1) for host in agents}
        self._topologies = {host: SharedCalls[Topology](1) for host in agents}
        self._measurements = {host: SharedCalls[Snapshot](MEASUREMENTS) for host in agents}
        self._readings = {host: SharedCalls[HostReading](1) for host in agents}
        self._measuring = _Places(MEASURING_CALLERS, 0.0, "callers wait for measurements of CPU use")
        self._observing = _Places(OBSERVING_CALLERS, PLACE_SECONDS, "callers wait for hosts")

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._agents))

    def agent(self, host: str) -> Agent:
        if host not in self._agents:
            raise NotFound("host", host, self.names())
        return self._agents[host]

    def require(self, host: str) -> None:
        self.agent(host)

    def only(self, host: str | None) -> str:
        """Raises NotFound, or Invalid where a host must be named."""
        if host is None and len(self._agents) == 1:
            return next(iter(self._agents))
        if host is None:
            raise Invalid("host", host, f"one of {', '.join(self.names())}")
        self.require(host)
        return host

    def snapshot(self, host: str, sample_seconds: float) -> Snapshot:
        """With guests' hints. Raises like Agent.snapshot, StoreUnavailable, Overloaded where MEASURING_CALLERS wait."""
        return self._with_hints(host, self._take(host, sample_seconds))

    def observe(self, host: str, sample_seconds: float) -> Snapshot:
        """Lacks the hints without the database. Raises like ``snapshot``; Overloaded beside OBSERVING_CALLERS."""
        with self._observing:
            taken = self._take(host, sample_seconds)
        try:
            return self._with_hints(host, taken)
        except StoreUnavailable as error:
            LOG.warning("host %s is shown without what earlier events told about its guests: %s", host, error)
            return taken

    def topology(self, host: str) -> Topology:
        agent = self.agent(host)
        with self._observing:
            return self._topologies[host].call(None, agent.topology)

    def reading(self, host: str, sample_seconds: float) -> HostReading:
        agent = self.agent(host)
        with self._measuring:
            return self._readings[host].call(sample_seconds, lambda: agent.reading(sample_seconds))

    def blame(self, host: str, guest: str, seconds: float) -> Blame:
        """``guest`` is a UUID. Raises like Agent.blame, and Overloaded."""
        agent = self.agent(host)
        with self._measuring:
            return agent.blame(guest, seconds)

    def _with_hints(self, host: str, taken: Snapshot) -> Snapshot:
        hints, now = self._hints.of(host), self._now()
        latest = now + self._migration
        if any(hint.leaving_until is not None and hint.leaving_until > latest for hint in hints.values()):
            # The clock was set back since then: the guest must not count as leaving for longer by that step.
            self._hints.shorten(host, latest)
            hints = self._hints.of(host)
        return with_guest_hints(taken, hints, now)

    def _take(self, host: str, sample_seconds: float) -> Snapshot:
        agent = self.agent(host)
        if sample_seconds > 0:
            with self._measuring:
                return self._measurements[host].call(sample_seconds, lambda: agent.snapshot(sample_seconds))
        return self._scans[host].call(None, lambda: self._scan(host, agent))

    def _scan(self, host: str, agent: Agent) -> Snapshot:
        began = time.monotonic()
        taken = agent.snapshot(0.0)
        self._observed(host, time.monotonic() - began)
        return taken


class _Places:
    """Lets ``most`` callers in at the same time. Others wait for ``seconds``, and get Overloaded then."""

    def __init__(self, most: int, seconds: float, what: str) -> None:
        self._free = threading.BoundedSemaphore(most)
        self._seconds = seconds
        self._why = f"{most} {what}"

    def __enter__(self) -> None:
        if not self._free.acquire(timeout=self._seconds):
            raise Overloaded(self._why, RETRY_SECONDS)

    def __exit__(self, *_: object) -> None:
        self._free.release()


T = TypeVar("T")


class SharedCalls(Generic[T]):
    """Makes at most ``at_once`` calls at the same time. Callers share a call that waits to begin: one under way could
    miss what a caller has just done."""

    def __init__(self, at_once: int) -> None:
        self._slots = threading.Semaphore(at_once)
        self._lock = threading.Lock()
        self._waiting: dict[object, Future[T]] = {}

    def call(self, key: object, function: Callable[[], T]) -> T:
        """All callers get its exception."""
        with self._lock:
            shared = self._waiting.get(key)
            if first := shared is None:
                shared = self._waiting[key] = Future()
        if first:
            with self._slots:
                with self._lock:
                    del self._waiting[key]
                _make(shared, function)
        return shared.result()


def _make(shared: Future[T], function: Callable[[], T]) -> None:
    try:
        shared.set_result(function())
    except BaseException as error:
        shared.set_exception(error)
