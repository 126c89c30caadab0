"""Puts the local service together: each part gets only the parts below it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pinner.agent.protocol import Agent
from pinner.planning.policy.repack import DEFAULT_RULE, RepackRule
from pinner.service.audit.audit_trail import AuditTrail
from pinner.service.hosts.checker import HostChecker
from pinner.service.hosts.guest_exclusions import GuestExclusions
from pinner.service.hosts.hosts import Hosts
from pinner.service.hosts.plan_maker import PlanMaker
from pinner.service.local import LocalService
from pinner.service.metrics import Metrics
from pinner.service.outcome.measures import MeasureReader
from pinner.service.outcome.outcomes import OutcomeKeeper
from pinner.service.outcome.probe_execution import Timing
from pinner.service.outcome.probes import ProbeManager
from pinner.service.policy.capacity import CapacityReader
from pinner.service.policy.observation import Observer
from pinner.service.policy.policies import HostPolicies
from pinner.service.reconcile.guest_events import GuestEventHandler
from pinner.service.reconcile.reconciler import Reconciler, RepackProposer
from pinner.service.runs.audit_heads import AuditHeads
from pinner.service.runs.runs import RunManager
from pinner.service.upkeep.monitor import Monitor
from pinner.store.repositories import Store
from pinner.store.retention import Retention


@dataclass(frozen=True, slots=True)
class ServiceParts:
    service: LocalService
    reconciler: Reconciler
    runs: RunManager
    outcomes: OutcomeKeeper
    probes: ProbeManager
    store: Store
    monitor: Monitor
    audit_heads: AuditHeads
    retention: Retention

    def close(self) -> None:
        """End the probes, accept no more runs, and wait for the runs under way."""
        self.probes.stop()
        self.runs.close()


def compose(
    agents: Mapping[str, Agent],
    store: Store,
    now: Callable[[], datetime],
    new_id: Callable[[], str],
    sample_seconds: float,
    migration: timedelta = timedelta(hours=1),
    repack: RepackRule = DEFAULT_RULE,
    timing: Timing | None = None,
) -> ServiceParts:
    """``sample_seconds`` is the default sample of CPU use. ``migration`` is how long a guest counts as leaving.
    ``timing`` are the clocks of probes; None: those of the machine."""
    metrics = Metrics(store.probe)
    hosts = Hosts(agents, store.guest_hints, now, metrics.observed, migration=migration)
    policies = HostPolicies(hosts, store, now)
    plans = PlanMaker(hosts, store, now, sample_seconds)
    heads = AuditHeads(hosts, store)
    runs = RunManager(hosts, policies, heads, store, now, new_id, metrics.changed)
    repacks = RepackProposer(plans, repack, now)
    outcomes = OutcomeKeeper(hosts, policies, runs, store, now)
    timing = timing or Timing(now)
    probes = ProbeManager(hosts, policies, runs, store, new_id, outcomes.require_measured, timing)
    reconciler = Reconciler(hosts, policies, plans, runs, store, now, new_id, sample_seconds, repacks)
    guest_events = GuestEventHandler(hosts, reconciler, store, now, migration)
    exclusions = GuestExclusions(hosts, store, now)
    trail = AuditTrail(hosts, runs, store)
    capacities = CapacityReader(hosts, policies, Observer(hosts, policies, store, now), metrics)
    service = LocalService(
        hosts,
        plans,
        policies,
        runs,
        reconciler,
        guest_events,
        exclusions,
        capacities,
        HostChecker(),
        MeasureReader(hosts, now),
        outcomes,
        probes,
        trail,
        store,
    )
    monitor = Monitor(hosts, policies, store.probe, metrics, capacities.measure)
    return ServiceParts(service, reconciler, runs, outcomes, probes, store, monitor, heads, store.retention)
