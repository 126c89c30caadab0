"""Metrics for Prometheus (https://prometheus.io/docs/practices/naming/). No label has a value that guests or callers
choose, so their number is bounded."""

import time
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pinner.model.errors import StoreUnavailable
from pinner.model.health import AgentHealth, Check, Queue
from pinner.model.policy import DriftReport
from pinner.model.questions import Capacity
from pinner.model.run.journal import Entry
from pinner.store.database.probe import DatabaseProbe

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Several threads may use it."""

    def __init__(self, probe: DatabaseProbe) -> None:
        self._registry = registry = CollectorRegistry()
        self._observations = Histogram(
            "pinner_observation_seconds",
            "Time of a scan of a host, without the sample of CPU use.",
            ["host"],
            registry=registry,
            buckets=_SECONDS,
        )
        self._reconciles = Histogram(
            "pinner_reconcile_seconds",
            "Time from the arrival of host events, or from the start of a resync, to the end of the reconcile.",
            ["host"],
            registry=registry,
            buckets=_SECONDS,
        )
        self._failures = Counter(
            "pinner_reconcile_failures", "Reconciles that failed and are tried again.", ["host"], registry=registry
        )
        self._changes = Counter(
            "pinner_changes", "Changes of hosts that this server has seen end, by their state.", ["host", "state"],
            registry=registry,
        )  # fmt: skip
        self._drifts = Gauge("pinner_drifts", "Targets that differ from their place.", ["host"], registry=registry)
        self._backoffs = Gauge(
            "pinner_backoffs", "Targets in backoff: their drift came back, or they could not be placed.", ["host"],
            registry=registry,
        )  # fmt: skip
        self._unplaced = Gauge(
            "pinner_unplaced_guests", "Guests for which the policy has no place.", ["host"], registry=registry
        )
        self._observed_at: dict[str, float] = {}
        self._rooms: dict[str, Capacity] = {}
        self._agents: Mapping[str, AgentHealth] = {}
        self._checks: tuple[Check, ...] = ()
        self.queue: Callable[[], Queue] = Queue
        registry.register(_Now(self, probe))

    def observed(self, host: str, seconds: float) -> None:
        self._observations.labels(host).observe(seconds)

    def reconciled(self, report: DriftReport, seconds: float | None) -> None:
        """The report came ``seconds`` after its cause; None: after a sample of CPU use."""
        if seconds is not None:
            self._reconciles.labels(report.host).observe(seconds)
        self._drifts.labels(report.host).set(len(report.drifts))
        self._backoffs.labels(report.host).set(sum(drift.backoff_until is not None for drift in report.drifts))
        guests = {left.target.owner for left in report.unplaced if left.target.kind != "process"}
        self._unplaced.labels(report.host).set(len(guests))
        self._observed_at[report.host] = time.monotonic()

    def policy_deleted(self, host: str) -> None:
        for gauge in (self._drifts, self._backoffs, self._unplaced):
            with suppress(KeyError):
                gauge.remove(host)
        self._observed_at.pop(host, None)

    def room(self, capacity: Capacity) -> None:
        self._rooms[capacity.host] = capacity

    def without_room(self, host: str) -> None:
        self._rooms.pop(host, None)

    def reconcile_failed(self, host: str) -> None:
        self._failures.labels(host).inc()

    def changed(self, host: str, entries: Iterable[Entry]) -> None:
        for state, count in Counted(entry.state for entry in entries).items():
            self._changes.labels(host, state).inc(count)

    def checked(self, agents: Mapping[str, AgentHealth], checks: tuple[Check, ...]) -> None:
        self._agents, self._checks = agents, checks

    def seconds_since_reconcile(self, host: str) -> float | None:
        """None: no reconcile ended since this server started."""
        observed_at = self._observed_at.get(host)
        return None if observed_at is None else time.monotonic() - observed_at

    def text(self) -> bytes:
        """The metrics of a database that does not answer are missing."""
        return generate_latest(self._registry)

    def now(self) -> Iterator[Metric]:
        checks = GaugeMetricFamily("pinner_check_ok", "1: the part does its work (GET /v1/health).", labels=["check"])
        for name in sorted({check.name for check in self._checks}):
            checks.add_metric([name], float(all(known.ok for known in self._checks if known.name == name)))
        threads = GaugeMetricFamily("pinner_agent_threads", "Threads of the agent.", labels=["host"])
        for host, agent in self._agents.items():
            threads.add_metric([host], agent.threads)
        ages = GaugeMetricFamily(
            "pinner_seconds_since_reconcile", "Age of the latest comparison with the policy.", labels=["host"]
        )
        for host in tuple(self._observed_at):
            ages.add_metric([host], self.seconds_since_reconcile(host) or 0.0)
        yield self._room_now()
        queue = self.queue()
        yield checks
        yield threads
        yield ages
        yield GaugeMetricFamily("pinner_requests_waiting", "Requests that wait for a thread.", queue.waiting)
        yield GaugeMetricFamily("pinner_requests_waiting_seconds", "Wait of the first of them.", queue.seconds)

    def _room_now(self) -> Metric:
        """Plug-ins, and strategies that can place nothing, are left out."""
        metric = GaugeMetricFamily(
            "pinner_free_vcpus",
            "vCPUs that a node has CPUs for beside those of the present guests.",
            labels=["host", "strategy", "node"],
        )
        for host, capacity in tuple(self._rooms.items()):
            for strategy in capacity.strategies:
                for node in strategy.nodes:
                    name = "" if node.node is None else str(node.node)
                    metric.add_metric([host, strategy.strategy, name], node.free_vcpus)
        return metric


class _Now(Collector):
    def __init__(self, metrics: Metrics, probe: DatabaseProbe) -> None:
        self._metrics = metrics
        self._probe = probe

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.now()
        try:
            size, counts = self._probe.size(), self._probe.runs()
        except StoreUnavailable:
            return
        yield GaugeMetricFamily("pinner_database_bytes", "Size of the central database.", size)
        runs = GaugeMetricFamily("pinner_runs", "Stored runs by their state.", labels=["host", "state"])
        for (host, state), count in sorted(counts.items()):
            runs.add_metric([host, state], count)
        yield runs

    def describe(self) -> Iterator[Metric]:
        """A registration must not read the database."""
        return iter(())
