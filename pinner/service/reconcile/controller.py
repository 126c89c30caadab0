"""Keeps a host's policy while a server runs. One thread reconciles after host events and once per resync interval; a
second one measures CPU use for seconds."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from pinner.model.doubling import doubled
from pinner.model.errors import NotFound, PinnerError
from pinner.model.event import HostEvent
from pinner.model.policy import DriftReport, Policy
from pinner.model.text import listed
from pinner.worker import BeatingThread

LOG = logging.getLogger(__name__)

POLL_SECONDS = 5.0
"""The longest wait for host events before the policy is read again: another process may have set it."""

QUIET_SECONDS, DEBOUNCE_SECONDS = 0.01, 0.05
"""A guest's start is several events: those within QUIET_SECONDS make one reconcile, at most DEBOUNCE_SECONDS later."""

SHARE = 3
"""A flood of events costs at most 1/SHARE of a CPU: the controller rests in proportion to its reconciles' time."""

CREDIT_SECONDS = 0.5
"""The time of reconciles before the first rest: a guest's restart causes two or three."""

MAX_REST_SECONDS = 0.5
"""Events during a rest lead to one reconcile at its end, without another wait of DEBOUNCE_SECONDS."""

NAMED = 3

HANGS_SECONDS = 1800.0
"""A reconcile's run may wait for many guests that hang."""

MIGRATING_SECONDS = 2.0
"""The time between two reconciles while a guest migrates: libvirt reports only some ends of migrations."""

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds until the next attempt while the host or the database fails, or the policy cannot be kept; doubled. No event
tells that an obstacle, such as a claim on CPUs, has ended."""


class HostReconciler(Protocol):
    def policy(self, host: str) -> Policy:
        """Raises NotFound."""

    def host_events(self, host: str, after: int, timeout: float) -> tuple[HostEvent, ...]: ...

    def further_events(self, host: str, after: int) -> tuple[HostEvent, ...]: ...

    def reconcile(self, host: str, cause: str, *, measured: bool = False) -> DriftReport: ...


class ReconcileMetrics(Protocol):
    def reconciled(self, report: DriftReport, seconds: float | None) -> None: ...

    def reconcile_failed(self, host: str) -> None: ...

    def policy_deleted(self, host: str) -> None: ...


class PolicyController:
    def __init__(
        self,
        reconciler: HostReconciler,
        host: str,
        *,
        resync_seconds: float,
        measure_seconds: float,
        metrics: ReconcileMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``resync_seconds`` and ``measure_seconds``: the longest times between two reconciles, and two measurements of
        CPU use."""
        self._metrics = metrics
        self._reconciler = reconciler
        self._host = host
        self._resync_seconds = resync_seconds
        self._measure_seconds = measure_seconds
        self._clock = clock
        self._stop = threading.Event()
        self._threads = [
            BeatingThread(partial(self._repeat, 0, self._wait_for_events), "controller-events", HANGS_SECONDS),
            BeatingThread(
                partial(self._repeat, 1, self._measure), "controller-measure", measure_seconds + HANGS_SECONDS
            ),
        ]
        self.heartbeats = [thread.heartbeat for thread in self._threads]
        self._reconciling = threading.Lock()
        self._after = 0
        self._policy: Policy | None = None
        self._first_cause = "started"
        self._due = 0.0
        self._has_unplaced = False
        self._error = ""
        self._errors = 0
        """Reconciles in a row that reported an error."""
        self._ended = 0.0
        self._rested = 0.0
        self._spent = 0.0
        """Seconds that reconciles took, less the share that the time between them allows."""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for heartbeat in self.heartbeats:
            heartbeat.end()
        self._stop.set()
        with self._reconciling:
            pass

    def _repeat(self, number: int, work: Callable[[], None]) -> None:
        failures = 0
        while not self._stop.is_set():
            self.heartbeats[number].beat()
            retry = doubled(FIRST_RETRY, failures, LAST_RETRY)
            try:
                work()
                failures = 0
                continue
            except PinnerError as error:
                LOG.warning("host %s: reconcile failed, next attempt in %g s: %s", self._host, retry, error)
            except Exception:
                if self._stop.is_set():
                    return  # agent and store are being closed
                LOG.exception("host %s: reconcile failed, next attempt in %g s", self._host, retry)
            self._due = 0.0
            if self._metrics:
                self._metrics.reconcile_failed(self._host)
            self._stop.wait(retry)
            failures += 1

    def _wait_for_events(self) -> None:
        policy = self._read_policy()
        if policy is None:
            if self._policy is not None and self._metrics:
                self._metrics.policy_deleted(self._host)
            self._policy = None
            events = self._reconciler.host_events(self._host, self._after, POLL_SECONDS)
            self._after = events[-1].seq if events else self._after
            return
        if policy != self._policy:
            self._reconcile(self._first_cause)
            self._policy, self._first_cause = policy, "policy set"
        seconds = self._due - self._clock()
        if seconds <= 0:
            self._reconcile("resync")
            return
        events = self._reconciler.host_events(self._host, self._after, min(seconds, POLL_SECONDS))
        if not events or self._stop.is_set():
            return
        arrived = self._clock()
        events = self._with_further(events, arrived)
        # A guest that stopped leaves no thread misplaced, but its CPUs may suit a guest without a place. A new policy
        # is compared above. A guest that is paused keeps its threads and their affinities.
        ignored = {"policy-set", "guest-paused"} | (set() if self._has_unplaced else {"guest-stopped"})
        relevant = [event for event in events if event.kind not in ignored]
        if relevant:
            self._reconcile(_summary(relevant), arrived)
        self._after = events[-1].seq

    def _with_further(self, events: tuple[HostEvent, ...], arrived: float) -> tuple[HostEvent, ...]:
        self._stop.wait(max(QUIET_SECONDS, self._rested - arrived))
        while further := self._reconciler.further_events(self._host, events[-1].seq):
            events += further
            if self._clock() - arrived >= DEBOUNCE_SECONDS:
                break
            self._stop.wait(QUIET_SECONDS)
        return events

    def _reconcile(self, cause: str, arrived: float | None = None) -> None:
        if (rest := self._rested - self._clock()) > 0:
            self._stop.wait(rest)
        began = self._clock()
        self._spent = max(0.0, self._spent - (began - self._ended) / (SHARE - 1))
        with self._reconciling:
            if self._stop.is_set():
                return
            report = self._reconciler.reconcile(self._host, cause)
        self._ended = ended = self._clock()
        self._learn(report, ended - (began if arrived is None else arrived))
        rest = (SHARE - 1) * (self._spent + ended - began - CREDIT_SECONDS)
        self._rested = ended + min(rest, MAX_REST_SECONDS)
        self._spent = min(self._spent + ended - began, CREDIT_SECONDS + MAX_REST_SECONDS / (SHARE - 1))

    def _learn(self, report: DriftReport, seconds: float | None) -> None:
        if self._metrics:
            self._metrics.reconciled(report, seconds)
        untils = (drift.backoff_until for drift in report.drifts)
        backoffs = [(until - report.at).total_seconds() for until in untils if until]
        waits = [self._resync_seconds, *(max(backoff, FIRST_RETRY) for backoff in backoffs)]
        if report.migrating:
            waits.append(MIGRATING_SECONDS)
        if report.error:
            waits.append(doubled(FIRST_RETRY, self._errors, LAST_RETRY))
        self._errors = self._errors + 1 if report.error else 0
        self._due = self._clock() + min(waits)
        if report.error and report.error != self._error:
            LOG.warning("host %s: the policy cannot be kept: %s", self._host, report.error)
        self._error = report.error
        self._has_unplaced = bool(report.unplaced)

    def _measure(self) -> None:
        if not self._stop.wait(self._measure_seconds) and self._read_policy() is not None:
            report = self._reconciler.reconcile(self._host, "measured resync", measured=True)
            # A policy may be deleted meanwhile.
            if report.mode is not None:
                self._learn(report, None)

    def _read_policy(self) -> Policy | None:
        try:
            return self._reconciler.policy(self._host)
        except NotFound:
            return None


def _summary(events: list[HostEvent]) -> str:
    summaries = list(
        dict.fromkeys(" ".join(filter(None, (event.kind, event.subject, event.detail))) for event in events)
    )
    return listed(summaries, NAMED, "; ")
