"""Keeps a host's policy while a server runs: waits for news, lets it settle, looks; and sweeps now and then as the net.

One thread listens and mends; another measures CPU use, which takes seconds in which nobody may have to wait.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from pinner.model.drift import DriftReport, News
from pinner.model.errors import NotFound, PinnerError
from pinner.model.policy import Policy

LOG = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""How long one wait for news lasts; after it the policy is read again, which may have been set beside the agent."""

SETTLE_SECONDS = 0.05
"""News comes in flocks: a guest that starts is several events. What comes within is looked at together."""

ROW_SECONDS = 5.0
"""A look that begins so soon after another's end is one of a row."""

FREE_LOOKS = 3
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

    def news(self, host: str, after: int, timeout: float) -> tuple[News, ...]:
        """See Agent.news."""

    def reconcile(self, host: str, cause: str, *, measured: bool = False) -> DriftReport:
        """See Policing."""


class Keeper:
    """The keeper of one host; ``start`` and ``stop`` it once."""

    def __init__(
        self,
        policies: Policies,
        host: str,
        *,
        sweep_seconds: float,
        measure_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``sweep_seconds`` between two looks without any news, ``measure_seconds`` between two that measure."""
        self._policies = policies
        self._host = host
        self._sweep_seconds = sweep_seconds
        self._measure_seconds = measure_seconds
        self._clock = clock
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._persist, args=(work,), name=f"keeper-{name}", daemon=True)
            for name, work in (("listen", self._listen), ("measure", self._measure))
        ]
        self._looking = threading.Lock()
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
        with self._looking:
            pass

    def _persist(self, work: Callable[[], None]) -> None:
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

    def _listen(self) -> None:
        """One wait for news or the next sweep, and the look after it."""
        policy = self._read_policy()
        if policy is None:
            heard = self._policies.news(self._host, self._after, POLL_SECONDS)
            self._after = heard[-1].seq if heard else self._after
            return
        if policy != self._policy:
            self._look("policy set" if self._policy else "started")
            self._policy = policy
        left = self._due - self._clock()
        if left <= 0:
            self._look("sweep")
            return
        heard = self._policies.news(self._host, self._after, min(left, POLL_SECONDS))
        if not heard or self._stop.is_set():
            return
        self._stop.wait(SETTLE_SECONDS)
        heard += self._policies.news(self._host, heard[-1].seq, 0.0)
        # Where a guest stopped, nothing can be out of its place; but it may make room for one that had none. A policy
        # speaks for itself.
        idle = {"policy-set"} if self._crowded else {"policy-set", "guest-stopped"}
        matter = [news for news in heard if news.kind not in idle]
        if matter:
            self._look(_words(matter))
        self._after = heard[-1].seq

    def _look(self, cause: str) -> None:
        began = self._clock()
        self._row = self._row + 1 if began - self._ended < ROW_SECONDS else 0
        with self._looking:
            if self._stop.is_set():
                return
            report = self._policies.reconcile(self._host, cause)
        self._ended = ended = self._clock()
        holds = [(drift.held_until - report.at).total_seconds() for drift in report.drifts if drift.held_until]
        self._due = ended + min([self._sweep_seconds, *(max(hold, FIRST_RETRY) for hold in holds)])
        if report.error:
            LOG.warning("host %s is not as its policy wants it: %s", self._host, report.error)
        self._crowded = bool(report.unplaced)
        if self._row >= FREE_LOOKS:
            self._stop.wait(min(REST * (ended - began), MAX_REST_SECONDS))

    def _measure(self) -> None:
        """Wait for the next measurement, and make it."""
        if not self._stop.wait(self._measure_seconds) and self._read_policy() is not None:
            self._policies.reconcile(self._host, "measured sweep", measured=True)

    def _read_policy(self) -> Policy | None:
        try:
            return self._policies.policy(self._host)
        except NotFound:
            return None


def _words(heard: list[News]) -> str:
    """The news, for the audit trail: the first of them by name, and how many came with these."""
    told = list(dict.fromkeys(" ".join(filter(None, (news.kind, news.subject, news.detail))) for news in heard))
    more = f" (and {len(told) - NAMED} more)" if len(told) > NAMED else ""
    return "; ".join(told[:NAMED]) + more
