"""Policies that a controller keeps."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from support.values import NOON

from pinner.agent.host_event_queue import HostEventQueue
from pinner.model.errors import NoPolicy
from pinner.model.event import HostEvent
from pinner.model.plan.plan import LeftOut
from pinner.model.policy import Drift, DriftReport, Policy
from pinner.service.reconcile.controller import PolicyController


class Policies:
    """Records each reconcile; the next reconciles raise ``failures``."""

    def __init__(self) -> None:
        self.event_queue = HostEventQueue(lambda: NOON)
        self.wanted: Policy | None = Policy(mode="enforce")
        self.reconciles: list[tuple[str, bool]] = []
        self.failures: list[Exception] = []
        self.drifts: tuple[Drift, ...] = ()
        self.unplaced: tuple[LeftOut, ...] = ()
        self.migrating: tuple[str, ...] = ()
        self.error = ""
        self.polls = 0
        self.moved = threading.Condition()

    def policy(self, host: str) -> Policy:
        if self.wanted is None:
            raise NoPolicy(host)
        return self.wanted

    def host_events(self, host: str, after: int, timeout: float) -> tuple[HostEvent, ...]:
        self.polls += 1
        return self.event_queue.since(after, timeout, ())

    def further_events(self, host: str, after: int) -> tuple[HostEvent, ...]:
        return self.event_queue.since(after, 0.0, None)

    def reconcile(self, host: str, cause: str, *, measured: bool = False) -> DriftReport:
        with self.moved:
            self.reconciles.append((cause, measured))
            self.moved.notify_all()
            if self.failures:
                raise self.failures.pop()
            return DriftReport(
                host, NOON, "enforce", "plan-1", self.drifts, self.unplaced, error=self.error, migrating=self.migrating
            )

    def wait(self, count: int, seconds: float = 5.0) -> list[str]:
        """The causes of the first ``count`` reconciles: on a busy machine there may be more by now."""
        with self.moved:
            assert self.moved.wait_for(lambda: len(self.reconciles) >= count, seconds), self.reconciles
            return [cause for cause, _ in self.reconciles[:count]]


@contextmanager
def running_controller(policies: object, resync: float = 60.0, measure: float = 60.0) -> Iterator[PolicyController]:
    controller = PolicyController(policies, "h1", resync_seconds=resync, measure_seconds=measure)
    controller.start()
    try:
        yield controller
    finally:
        controller.stop()
