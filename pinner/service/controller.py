"""Keeps a host's policy while a server runs: waits for news, lets it settle, looks; and sweeps now and then as the net.

One thread listens and mends; another measures CPU use, which takes seconds in which nobody may have to wait.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from pinner.model.drift import DriftReport
from pinner.model.errors import NotFound, PinnerError
from pinner.model.event import HostEvent
from pinner.model.policy import Policy

LOG = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""How long one wait for news lasts; after it the policy is read again, which may have been set beside the agent."""

DEBOUNCE_SECONDS = 0.05
"""News comes in flocks: a guest that starts is several events. What comes within is looked at together."""

ROW_SECONDS = 5.0
"""A look that begins so soon after another's end is one of a row."""

FREE_RECONCILES = 3
"""So many looks in a row follow each other at once: a guest's restart is two or three."""

REST, MAX_REST_SECONDS = 2, 0.5
"""After each further look in a row so many times as long is waited as it took: a flood of news costs a third of a
CPU."""

NAMED = 3
"""How many of the news that led to a look are told by name."""

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds between tries while the host or the database fails, doubled after each."""


class Policies(Protocol):
    """What a keeper works with: Policing."""

    def policy(self, host: str) -> Policy:
        """The host's policy. Raises NotFound."""

    def host_events(self, host: str, after: int, timeout: float) -> tuple[HostEvent, ...]:
        """See Agent.news."""

    def reconcile(self, host: str, cause: str, *, measured: bool = False) -> DriftReport:
        """See Policing."""


class PolicyController:
    """The keeper of one host; ``start`` and ``stop`` it once."""

    def __init__(
        self,
        policies: Policies,
        host: str,
        *,
        resync_seconds: float,
        measure_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``resync_seconds`` between two looks without any news, ``measure_seconds`` between two that measure."""
        self._policies = policies
        self._host = host
        self._resync_seconds = resync_seconds
        self._measure_seconds = measure_seconds
        self._clock = clock
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(work,), name=f"keeper-{name}", daemon=True)
            for name, work in (("listen", self._wait_for_events), ("measure", self._measure))
        ]
        self._reconciling = threading.Lock()
        self._after = 0
        self._policy: Policy | None = None
        self._due = 0.0
        self._crowded = False
        self._row = 0
        self._ended = -ROW_SECONDS

    def start(self) -> None:
        """Begin to keep the host."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End. A look under way is waited for; neither a wait for news is, nor a sample."""
        self._stop.set()
        with self._reconciling:
            pass

    def _repeat(self, work: Callable[[], None]) -> None:
        """Do the work over and over; what goes wrong is logged, and tried again ever later."""
        retry = FIRST_RETRY
        while not self._stop.is_set():
            try:
                work()
                retry = FIRST_RETRY
                continue
            except PinnerError as error:
                LOG.warning("the policy of host %s cannot be kept now, next try in %g s: %s", self._host, retry, error)
            except Exception:
                if self._stop.is_set():
                    return  # what it works with is being closed
                LOG.exception("the policy of host %s could not be kept, next try in %g s", self._host, retry)
            self._due = 0.0
            self._stop.wait(retry)
            retry = min(2 * retry, LAST_RETRY)

    def _wait_for_events(self) -> None:
        """One wait for news or the next sweep, and the look after it."""
        policy = self._read_policy()
        if policy is None:
            events = self._policies.host_events(self._host, self._after, POLL_SECONDS)
            self._after = events[-1].seq if events else self._after
            return
        if policy != self._policy:
            self._reconcile("policy set" if self._policy else "started")
            self._policy = policy
        left = self._due - self._clock()
        if left <= 0:
            self._reconcile("resync")
            return
        events = self._policies.host_events(self._host, self._after, min(left, POLL_SECONDS))
        if not events or self._stop.is_set():
            return
        self._stop.wait(DEBOUNCE_SECONDS)
        events += self._policies.host_events(self._host, events[-1].seq, 0.0)
        # Where a guest stopped, nothing can be out of its place; but it may make room for one that had none. A policy
        # speaks for itself.
        idle = {"policy-set"} if self._crowded else {"policy-set", "guest-stopped"}
        matter = [host_events for host_events in events if host_events.kind not in idle]
        if matter:
            self._reconcile(_summary(matter))
        self._after = events[-1].seq

    def _reconcile(self, cause: str) -> None:
        began = self._clock()
        self._row = self._row + 1 if began - self._ended < ROW_SECONDS else 0
        with self._reconciling:
            if self._stop.is_set():
                return
            report = self._policies.reconcile(self._host, cause)
        self._ended = ended = self._clock()
        holds = [(drift.backoff_until - report.at).total_seconds() for drift in report.drifts if drift.backoff_until]
        self._due = ended + min(
            [self._resync_seconds, *(max(immovable_reason, FIRST_RETRY) for immovable_reason in holds)]
        )
        if report.error:
            LOG.warning("host %s is not as its policy wants it: %s", self._host, report.error)
        self._crowded = bool(report.unplaced)
        if self._row >= FREE_RECONCILES:
            self._stop.wait(min(REST * (ended - began), MAX_REST_SECONDS))

    def _measure(self) -> None:
        """Wait for the next measurement, and make it."""
        if not self._stop.wait(self._measure_seconds) and self._read_policy() is not None:
            self._policies.reconcile(self._host, "measured resync", measured=True)

    def _read_policy(self) -> Policy | None:
        try:
            return self._policies.policy(self._host)
        except NotFound:
            return None


def _summary(events: list[HostEvent]) -> str:
    """The news, for the audit trail: the first of them by name, and how many came with these."""
    summaries = list(
        dict.fromkeys(
            " ".join(filter(None, (host_events.kind, host_events.subject, host_events.detail)))
            for host_events in events
        )
    )
    more = f" (and {len(summaries) - NAMED} more)" if len(summaries) > NAMED else ""
    return "; ".join(summaries[:NAMED]) + more
