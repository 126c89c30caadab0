"""The use cases answered in this process. Most are a method of the part that does the work."""

from pinner.checks.irqs import interrupt_map
from pinner.model.machine.interrupts import HostInterrupts
from pinner.model.outcome.check import CheckReport
from pinner.model.page import Page, PageRequest
from pinner.model.plan.plan import PlanSummary
from pinner.model.policy import Policy, Setback
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions, Run
from pinner.planning.strategies.strategy import installed
from pinner.service.audit.audit_trail import AuditTrail
from pinner.service.hosts.checker import HostChecker
from pinner.service.hosts.guest_exclusions import GuestExclusions
from pinner.service.hosts.hosts import Hosts
from pinner.service.hosts.plan_maker import PlanMaker
from pinner.service.outcome.measures import MeasureReader
from pinner.service.outcome.outcomes import OutcomeKeeper
from pinner.service.outcome.probes import ProbeManager
from pinner.service.policy.capacity import CapacityReader
from pinner.service.policy.policies import HostPolicies
from pinner.service.protocol import StrategyInfo
from pinner.service.reconcile.guest_events import GuestEventHandler
from pinner.service.reconcile.reconciler import Reconciler
from pinner.service.runs.runs import RunManager
from pinner.store.repositories import Store


class LocalService:
    where = ""

    def __init__(
        self,
        hosts: Hosts,
        plans: PlanMaker,
        policies: HostPolicies,
        runs: RunManager,
        reconciler: Reconciler,
        guest_events: GuestEventHandler,
        exclusions: GuestExclusions,
        capacities: CapacityReader,
        checker: HostChecker,
        measures: MeasureReader,
        outcomes: OutcomeKeeper,
        probes: ProbeManager,
        audit_trail: AuditTrail,
        store: Store,
    ) -> None:
        self._hosts = hosts
        self._runs = runs
        self._checker = checker
        self._outcomes = outcomes
        self._store = store
        self.hosts = hosts.names
        self.observe = plans.observe
        self.topology = hosts.topology
        self.capacity = capacities.capacity
        self.what_if = plans.what_if
        self.measures = measures.measures
        self.blame = measures.blame
        self.take_snapshot = plans.take_snapshot
        self.snapshot = store.snapshots.get
        self.plan = plans.plan
        self.plan_by_id = store.plans.get
        self.explain = plans.explain
        self.rollback = runs.rollback
        self.rollback_all = runs.rollback_all
        self.run = runs.get
        self.outcome = outcomes.outcome
        self.probe = probes.begin
        self.probe_by_id = store.probes.get
        self.cancel_probe = probes.cancel
        self.runs = runs.list
        self.entries = runs.entries
        self.follow = runs.follow
        self.set_policy = policies.set
        self.delete_policy = policies.delete
        self.drift = reconciler.drift
        self.set_excluded = exclusions.set
        self.guest_event = guest_events.handle
        self.audit = store.audit.list
        self.verify_audit = audit_trail.verify
        self.audit_anchor = audit_trail.anchor
        self.export_audit = audit_trail.export

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
