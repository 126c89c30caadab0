"""The service in this process."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from pinner.agent.protocol import Agent
from pinner.checks.irqs import interrupt_map
from pinner.model.machine.interrupts import HostInterrupts
from pinner.model.outcome.check import CheckReport
from pinner.model.page import Page, PageRequest
from pinner.model.plan.plan import PlanSummary
from pinner.model.policy import Policy, Setback
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions, Run
from pinner.planning.moves import DEFAULT_RULE, RepackRule
from pinner.planning.strategies.strategy import installed
from pinner.service.audit.audit_trail import AuditTrail
from pinner.service.hosts.checker import HostChecker
from pinner.service.hosts.hosts import Hosts
from pinner.service.hosts.plan_maker import PlanMaker
from pinner.service.metrics import Metrics
from pinner.service.outcome.measures import MeasureReader
from pinner.service.outcome.outcomes import OutcomeKeeper
from pinner.service.outcome.probe_execution import Timing
from pinner.service.outcome.probes import ProbeManager
from pinner.service.policy.capacity import CapacityReader
from pinner.service.policy.observation import Observer
from pinner.service.policy.policies import GuestExclusions, HostPolicies
from pinner.service.protocol import StrategyInfo
from pinner.service.reconcile.guest_events import GuestEventHandler
from pinner.service.reconcile.reconciler import Reconciler, RepackProposer
from pinner.service.runs.audit_heads import AuditHeads
from pinner.service.runs.runs import RunManager
from pinner.service.upkeep.monitor import Monitor
from pinner.store.repositories import Store


class LocalService:
    where = ""

    def __init__(self, parts: "ServiceParts") -> None:
        self._hosts = parts.hosts
        self._runs = parts.runs
        self._checker = HostChecker()
        self._outcomes = parts.outcomes
        self._store = parts.store
        self.hosts = parts.hosts.names
        self.observe = parts.plans.observe
        self.topology = parts.hosts.topology
        self.capacity = parts.capacities.capacity
        self.what_if = parts.plans.what_if
        self.measures = parts.measures.measures
        self.blame = parts.measures.blame
        self.take_snapshot = parts.plans.take_snapshot
        self.snapshot = parts.store.snapshots.get
        self.plan = parts.plans.plan
        self.plan_by_id = parts.store.plans.get
        self.explain = parts.plans.explain
        self.rollback = parts.runs.rollback
        self.rollback_all = parts.runs.rollback_all
        self.run = parts.runs.get
        self.outcome = parts.outcomes.outcome
        self.probe = parts.probes.begin
        self.probe_by_id = parts.store.probes.get
        self.cancel_probe = parts.probes.cancel
        self.runs = parts.runs.list
        self.entries = parts.runs.entries
        self.follow = parts.runs.follow
        self.set_policy = parts.policies.set
        self.delete_policy = parts.policies.delete
        self.drift = parts.reconciler.drift
        self.set_excluded = parts.exclusions.set
        self.guest_event = parts.guest_events.handle
        self.audit = parts.store.audit.list
        self.verify_audit = parts.audit_trail.verify
        self.audit_anchor = parts.audit_trail.anchor
        self.export_audit = parts.audit_trail.export

    def strategies(self) -> tuple[StrategyInfo, ...]:
        return tuple(
            StrategyInfo(strategy.name, strategy.summary, strategy.parameters) for strategy in installed().values()
        )

    def findings(self, host: str, sample_seconds: float) -> CheckReport:
        return self._checker.check(self._hosts.reading(host, sample_seconds))

    def interrupts(self, host: str) -> HostInterrupts:
        return interrupt_map(self._hosts.reading(host, 0.0))

    def plans(self, host: str | None, part: PageRequest) -> Page[PlanSummary]:
        if host is not None:
            self._hosts.require(host)
        return self._store.plans.list(host, part)

    def apply(self, plan: str, options: ApplyOptions, caller: Caller) -> Run:
        watched = options.with_watch()
        self._outcomes.require_watchable(self._store.plans.get(plan), watched)
        return self._runs.apply(plan, watched, caller)

    def policy(self, host: str) -> Policy:
        self._hosts.require(host)
        return self._store.policies.get(host)

    def setback(self, host: str) -> Setback | None:
        self.policy(host)
        return self._store.policies.setback(host)


class ServiceParts:
    """The parts of the service: each gets only parts that ``__init__`` makes before it."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        store: Store,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        sample_seconds: float,
        migration: timedelta = timedelta(hours=1),
        repack: RepackRule = DEFAULT_RULE,
        timing: Timing | None = None,
    ) -> None:
        """``migration`` is how long a guest counts as leaving. Without ``timing``, probes use the clocks of the
        machine."""
        self.store = store
        metrics = Metrics(store.probe)
        self.hosts = hosts = Hosts(agents, store.guest_hints, now, metrics.observed, migration=migration)
        self.policies = policies = HostPolicies(hosts, store, now)
        self.plans = PlanMaker(hosts, store, now, sample_seconds)
        self.audit_heads = AuditHeads(hosts, store)
        self.runs = runs = RunManager(hosts, policies, self.audit_heads, store, now, new_id, metrics.changed)
        self.outcomes = OutcomeKeeper(hosts, policies, runs, store, now)
        require_measured = self.outcomes.require_measured
        self.probes = ProbeManager(hosts, policies, runs, store, new_id, require_measured, timing or Timing(now))
        repacks = RepackProposer(self.plans, repack, now)
        self.reconciler = Reconciler(hosts, policies, self.plans, runs, store, now, new_id, sample_seconds, repacks)
        self.guest_events = GuestEventHandler(hosts, self.reconciler, store, now, migration)
        self.exclusions = GuestExclusions(hosts, store, now)
        self.audit_trail = AuditTrail(hosts, runs, store)
        self.capacities = CapacityReader(hosts, policies, Observer(hosts, policies, store, now), metrics)
        self.measures = MeasureReader(hosts, now)
        self.monitor = Monitor(hosts, policies, store.probe, metrics, self.capacities.measure)
        self.service = LocalService(self)

    def close(self) -> None:
        """Ends the probes, accepts no more runs, and waits for those under way."""
        self.probes.stop()
        self.runs.close()
