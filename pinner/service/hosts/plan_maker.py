"""Makes plans, and stores each with its snapshot."""

from collections.abc import Callable
from datetime import datetime

from pinner import codec
from pinner.model.errors import Invalid
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.questions import Explanation, Scenario, WhatIf
from pinner.model.run.audit import AuditAction, AuditEvent, Caller, audit_event
from pinner.model.snapshot import MAX_SAMPLE_SECONDS, Snapshot
from pinner.planning import planner
from pinner.planning.placement import id_of
from pinner.planning.questions.explanation import explain_placement
from pinner.planning.questions.whatif import what_if
from pinner.planning.strategies.strategy import installed, require_known
from pinner.service.hosts.hosts import Hosts
from pinner.store.repositories import Store


class PlanMaker:
    def __init__(self, hosts: Hosts, store: Store, now: Callable[[], datetime], sample_seconds: float) -> None:
        self._hosts = hosts
        self._store = store
        self._now = now
        self._sample_seconds = sample_seconds

    def observe(self, host: str, sample_seconds: float) -> Snapshot:
        self._require_sample(sample_seconds)
        return self._hosts.observe(host, sample_seconds)

    def _require_sample(self, sample_seconds: float) -> None:
        if not 0 <= sample_seconds <= MAX_SAMPLE_SECONDS:
            raise Invalid("sample_seconds", sample_seconds, f"a number of seconds from 0 to {MAX_SAMPLE_SECONDS:g}")

    def take_snapshot(self, host: str, sample_seconds: float | None, caller: Caller) -> tuple[str, Snapshot]:
        sample_seconds = self._sample_seconds if sample_seconds is None else sample_seconds
        self._require_sample(sample_seconds)
        taken = self._hosts.snapshot(host, sample_seconds)
        key = codec.content_hash(taken)
        event = audit_event(caller, self._now(), AuditAction.SNAPSHOT_TAKE, host, key, "done")
        return self._store.snapshots.add(taken, [event]), taken

    def plan(
        self,
        host: str,
        request: Request,
        snapshot: str | None,
        sample_seconds: float | None,
        caller: Caller,
        replaces: str | None = None,
    ) -> Plan:
        self._hosts.require(host)
        require_installed(request.strategy)  # before the host is measured for seconds
        if replaces is not None:
            self._require_refused(replaces, host, request)
        if snapshot is None:
            key, basis = self.take_snapshot(host, sample_seconds, caller)
        else:
            key, basis = snapshot, self._store.snapshots.get(snapshot)
            if basis.host != host:
                raise Invalid("snapshot", snapshot, f"a snapshot of host {host}; this one is of {basis.host}")
        plan = planner.plan(basis, key, request)
        self._store.plans.add(plan, self._now(), [self._created(plan, caller, replaces)], record_again=True)
        return plan

    def _require_refused(self, plan: str, host: str, request: Request) -> None:
        stored = self._store.plans.get(plan)
        if stored.host != host:
            raise Invalid("replaces", plan, f"a plan of host {host}; this one is of {stored.host}")
        if stored.request != request:
            raise Invalid("replaces", plan, "a plan by the same request; this one has another request")
        if not self._store.runs.was_refused(plan):
            must = "a plan that an apply found stale, or the agent refused, and that was not applied; this one is not"
            raise Invalid("replaces", plan, must)

    def what_if(self, host: str, request: Request, scenario: Scenario, sample_seconds: float) -> WhatIf:
        self._hosts.require(host)
        require_installed(request.strategy)
        return what_if(self.observe(host, sample_seconds), request, scenario)

    def explain(self, plan: str, guest: str) -> Explanation:
        stored = self._store.plans.get(plan)
        basis = stored.basis.snapshot
        if stored.id != id_of(basis, stored.request):
            raise Invalid("plan", plan, "a plan that a caller requested; this one follows a recorded placement")
        return explain_placement(self._store.snapshots.get(basis), stored.request, guest)

    def keep(self, basis: Snapshot, plan: Plan, caller: Caller) -> None:
        self._store.plans.add(plan, self._now(), [self._created(plan, caller)], basis)

    def _created(self, plan: Plan, caller: Caller, replaces: str | None = None) -> AuditEvent:
        successor = replaces not in (None, plan.id)
        result = f"{len(plan.changes)} changes" + (f", in place of plan {replaces}" if successor else "")
        return audit_event(caller, self._now(), AuditAction.PLAN_CREATE, plan.host, plan.id, result)


def require_installed(strategy: str) -> None:
    """Raises NotFound, and Invalid for a strategy whose plug-in does not load."""
    require_known(strategy, installed())
