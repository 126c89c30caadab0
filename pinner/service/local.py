"""The use cases answered in this process: each method delegates to the part that does the work."""

from collections.abc import Iterator
from datetime import datetime

from pinner.checks.irqs import interrupt_map
from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.model.guest.guest import GuestExclusion
from pinner.model.machine.interrupts import HostInterrupts
from pinner.model.machine.topology import Topology
from pinner.model.outcome.blame import Blame
from pinner.model.outcome.check import CheckReport
from pinner.model.outcome.measures import Measures, Span
from pinner.model.outcome.outcome import Probe, RunOutcome
from pinner.model.page import Page, PageRequest
from pinner.model.plan.plan import Plan, PlanSummary
from pinner.model.plan.request import Request
from pinner.model.policy import DriftReport, Expected, Policy, Setback
from pinner.model.questions import Capacity, Explanation, GuestShape, Scenario, WhatIf
from pinner.model.run.agent_audit import Anchor
from pinner.model.run.audit import AuditRecord, Caller
from pinner.model.run.journal import ApplyOptions, Entry, Run, RunProgress, RunState
from pinner.model.run.verification import Verification
from pinner.model.snapshot import Snapshot
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
        self._plans = plans
        self._policies = policies
        self._runs = runs
        self._reconciler = reconciler
        self._guest_events = guest_events
        self._exclusions = exclusions
        self._capacities = capacities
        self._checker = checker
        self._measures = measures
        self._outcomes = outcomes
        self._probes = probes
        self._audit_trail = audit_trail
        self._store = store

    def hosts(self) -> tuple[str, ...]:
        return self._hosts.names()

    def strategies(self) -> tuple[StrategyInfo, ...]:
        return tuple(
            StrategyInfo(strategy.name, strategy.summary, strategy.parameters) for strategy in installed().values()
        )

    def observe(self, host: str, sample_seconds: float) -> Snapshot:
        return self._plans.observe(host, sample_seconds)

    def topology(self, host: str) -> Topology:
        return self._hosts.topology(host)

    def capacity(self, host: str, vcpus: int | None = None, shape: GuestShape | None = None) -> Capacity:
        return self._capacities.capacity(host, vcpus, shape)

    def what_if(self, host: str, request: Request, scenario: Scenario, sample_seconds: float) -> WhatIf:
        return self._plans.what_if(host, request, scenario, sample_seconds)

    def findings(self, host: str, sample_seconds: float) -> CheckReport:
        return self._checker.check(self._hosts.reading(host, sample_seconds))

    def measures(self, host: str, span: Span, guest: str | None = None, series: tuple[str, ...] = ()) -> Measures:
        return self._measures.measures(host, span, guest, series)

    def blame(self, host: str, guest: str, seconds: float) -> Blame:
        return self._measures.blame(host, guest, seconds)

    def interrupts(self, host: str) -> HostInterrupts:
        return interrupt_map(self._hosts.reading(host, 0.0))

    def take_snapshot(self, host: str, sample_seconds: float | None, caller: Caller) -> tuple[str, Snapshot]:
        return self._plans.take_snapshot(host, sample_seconds, caller)

    def snapshot(self, snapshot: str) -> Snapshot:
        return self._store.snapshots.get(snapshot)

    def plan(
        self, host: str, request: Request, snapshot: str | None, sample_seconds: float | None, caller: Caller
    ) -> Plan:
        return self._plans.plan(host, request, snapshot, sample_seconds, caller)

    def plan_by_id(self, plan: str) -> Plan:
        return self._store.plans.get(plan)

    def explain(self, plan: str, guest: str) -> Explanation:
        return self._plans.explain(plan, guest)

    def plans(self, host: str | None, part: PageRequest) -> Page[PlanSummary]:
        if host is not None:
            self._hosts.require(host)
        return self._store.plans.list(host, part)

    def apply(self, plan: str, options: ApplyOptions, caller: Caller) -> Run:
        watched = options.with_watch()
        self._outcomes.require_watchable(self._store.plans.get(plan), watched)
        return self._runs.apply(plan, watched, caller)

    def rollback(self, run: str, caller: Caller) -> Run:
        return self._runs.rollback(run, caller)

    def rollback_all(self, host: str, caller: Caller) -> Run:
        return self._runs.rollback_all(host, caller)

    def run(self, run: str) -> Run:
        return self._runs.get(run)

    def outcome(self, run: str) -> RunOutcome:
        return self._outcomes.outcome(run)

    def probe(self, plan: str, windows: int, seconds: int, caller: Caller) -> Probe:
        return self._probes.begin(plan, windows, seconds, caller)

    def probe_by_id(self, probe: str) -> Probe:
        return self._probes.get(probe)

    def cancel_probe(self, probe: str, caller: Caller) -> Probe:
        return self._probes.cancel(probe, caller)

    def runs(self, host: str | None, part: PageRequest, *, state: RunState | None = None) -> Page[Run]:
        return self._runs.list(host, part, state=state)

    def entries(self, run: str) -> tuple[Entry, ...]:
        return self._runs.entries(run)

    def follow(self, run: str) -> Iterator[RunProgress]:
        return self._runs.follow(run)

    def policy(self, host: str) -> Policy:
        self._hosts.require(host)
        return self._policies.get(host)

    def setback(self, host: str) -> Setback | None:
        self.policy(host)
        return self._policies.setback(host)

    def set_policy(self, host: str, policy: Policy, caller: Caller, expected: Expected = None) -> Policy:
        return self._policies.set(host, policy, caller, expected)

    def delete_policy(self, host: str, caller: Caller, expected: Expected = None) -> None:
        self._policies.delete(host, caller, expected)

    def drift(self, host: str) -> DriftReport:
        return self._reconciler.drift(host)

    def set_excluded(self, host: str, guest: str, excluded: bool, caller: Caller) -> GuestExclusion:
        return self._exclusions.set(host, guest, excluded, caller)

    def guest_event(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        return self._guest_events.handle(host, event, caller)

    def audit(
        self, host: str | None, actor: str | None, since: datetime | None, part: PageRequest
    ) -> Page[AuditRecord]:
        return self._store.audit.list(host, actor, since, part)

    def verify_audit(self, anchor: Anchor | None = None) -> Verification:
        return self._audit_trail.verify(anchor)

    def audit_anchor(self) -> Anchor:
        return self._audit_trail.anchor()

    def export_audit(self) -> Iterator[str]:
        return self._audit_trail.export()
