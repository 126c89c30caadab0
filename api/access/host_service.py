"""The service as a caller sees it whose token is limited to one host.

A view reaches the service only through ``context.pinner()``, so no view can forget the limit. Another host that the
caller names is refused with Forbidden, whether it exists or not. A plan, run or snapshot of another host is NotFound,
exactly like an id that does not exist: the caller learns nothing about other hosts. Lists have the one host only.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from werkzeug.exceptions import Forbidden

from pinner.model.errors import Invalid, NotFound
from pinner.model.guest.guest import GuestExclusion
from pinner.model.machine.interrupts import HostInterrupts
from pinner.model.machine.topology import Topology
from pinner.model.outcome.check import CheckReport
from pinner.model.outcome.measures import Measures, Span
from pinner.model.outcome.outcome import RunOutcome
from pinner.model.outcome.probe import Probe
from pinner.model.page import Page, PageRequest
from pinner.model.plan.plan import Plan, PlanSummary
from pinner.model.plan.request import Request
from pinner.model.policy.drift import DriftReport
from pinner.model.policy.event import GuestEvent, GuestEventOutcome
from pinner.model.policy.policy import Expected, Policy, Setback
from pinner.model.processes.blame import Blame
from pinner.model.questions.capacity import Capacity
from pinner.model.questions.whatif import Explanation, GuestShape, Scenario, WhatIf
from pinner.model.run.agent_audit import Anchor
from pinner.model.run.audit import AuditRecord, Caller
from pinner.model.run.journal import ApplyOptions, Entry, Run, RunProgress, RunState
from pinner.model.run.verification import Verification
from pinner.model.snapshot import Snapshot
from pinner.service.protocol import Service, StrategyInfo


class HostService:
    """Satisfies Service with the objects of one host of ``every``."""

    where = ""

    def __init__(self, every: Service, host: str) -> None:
        self._every = every
        self._host = host

    def hosts(self) -> tuple[str, ...]:
        """The one host, where the server manages it."""
        return tuple(host for host in self._every.hosts() if host == self._host)

    def strategies(self) -> tuple[StrategyInfo, ...]:
        """See Service; strategies belong to no host."""
        return self._every.strategies()

    def observe(self, host: str, sample_seconds: float) -> Snapshot:
        return self._every.observe(self._only(host), sample_seconds)

    def topology(self, host: str) -> Topology:
        return self._every.topology(self._only(host))

    def capacity(self, host: str, vcpus: int | None = None, shape: GuestShape | None = None) -> Capacity:
        return self._every.capacity(self._only(host), vcpus, shape)

    def what_if(self, host: str, request: Request, scenario: Scenario, sample_seconds: float) -> WhatIf:
        return self._every.what_if(self._only(host), request, scenario, sample_seconds)

    def findings(self, host: str, sample_seconds: float) -> CheckReport:
        return self._every.findings(self._only(host), sample_seconds)

    def measures(self, host: str, span: Span, guest: str | None = None, series: tuple[str, ...] = ()) -> Measures:
        return self._every.measures(self._only(host), span, guest, series)

    def blame(self, host: str, guest: str, seconds: float) -> Blame:
        return self._every.blame(self._only(host), guest, seconds)

    def interrupts(self, host: str) -> HostInterrupts:
        return self._every.interrupts(self._only(host))

    def take_snapshot(self, host: str, sample_seconds: float | None, caller: Caller) -> tuple[str, Snapshot]:
        return self._every.take_snapshot(self._only(host), sample_seconds, caller)

    def snapshot(self, snapshot: str) -> Snapshot:
        found = self._every.snapshot(snapshot)
        self._require_own("snapshot", snapshot, found.host)
        return found

    def plan(
        self, host: str, request: Request, snapshot: str | None, sample_seconds: float | None, caller: Caller
    ) -> Plan:
        host = self._only(host)
        if snapshot is not None:
            self.snapshot(snapshot)
        return self._every.plan(host, request, snapshot, sample_seconds, caller)

    def plan_by_id(self, plan: str) -> Plan:
        found = self._every.plan_by_id(plan)
        self._require_own("plan", plan, found.host)
        return found

    def explain(self, plan: str, guest: str) -> Explanation:
        self.plan_by_id(plan)
        return self._every.explain(plan, guest)

    def plans(self, host: str | None, part: PageRequest) -> Page[PlanSummary]:
        host = self._only(host)
        if part.marker:
            self._require_own_marker(part.marker, self.plan_by_id)
        return self._every.plans(host, part)

    def apply(self, plan: str, options: ApplyOptions, caller: Caller) -> Run:
        self.plan_by_id(plan)
        return self._every.apply(plan, options, caller)

    def rollback(self, run: str, caller: Caller) -> Run:
        self.run(run)
        return self._every.rollback(run, caller)

    def rollback_all(self, host: str, caller: Caller) -> Run:
        return self._every.rollback_all(self._only(host), caller)

    def run(self, run: str) -> Run:
        found = self._every.run(run)
        self._require_own("run", run, found.host)
        return found

    def outcome(self, run: str) -> RunOutcome:
        self.run(run)
        return self._every.outcome(run)

    def probe(self, plan: str, windows: int, seconds: int, caller: Caller) -> Probe:
        self.plan_by_id(plan)
        return self._every.probe(plan, windows, seconds, caller)

    def probe_by_id(self, probe: str) -> Probe:
        found = self._every.probe_by_id(probe)
        self._require_own("probe", probe, found.host)
        return found

    def cancel_probe(self, probe: str, caller: Caller) -> Probe:
        self.probe_by_id(probe)
        return self._every.cancel_probe(probe, caller)

    def runs(self, host: str | None, part: PageRequest, *, state: RunState | None = None) -> Page[Run]:
        host = self._only(host)
        if part.marker:
            self._require_own_marker(part.marker, self.run)
        return self._every.runs(host, part, state=state)

    def entries(self, run: str) -> tuple[Entry, ...]:
        self.run(run)
        return self._every.entries(run)

    def follow(self, run: str) -> Iterator[RunProgress]:
        self.run(run)
        return self._every.follow(run)

    def policy(self, host: str) -> Policy:
        return self._every.policy(self._only(host))

    def setback(self, host: str) -> Setback | None:
        return self._every.setback(self._only(host))

    def set_policy(self, host: str, policy: Policy, caller: Caller, expected: Expected = None) -> Policy:
        return self._every.set_policy(self._only(host), policy, caller, expected)

    def delete_policy(self, host: str, caller: Caller, expected: Expected = None) -> None:
        self._every.delete_policy(self._only(host), caller, expected)

    def drift(self, host: str) -> DriftReport:
        return self._every.drift(self._only(host))

    def set_excluded(self, host: str, guest: str, excluded: bool, caller: Caller) -> GuestExclusion:
        return self._every.set_excluded(self._only(host), guest, excluded, caller)

    def guest_event(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        """See Service; an event without a host is the one host's."""
        return self._every.guest_event(self._only(host), event, caller)

    def audit(
        self, host: str | None, actor: str | None, since: datetime | None, part: PageRequest
    ) -> Page[AuditRecord]:
        return self._every.audit(self._only(host), actor, since, part)

    def verify_audit(self, anchor: Anchor | None = None) -> Verification:  # noqa: ARG002
        """Refused: the chain covers every host."""
        raise self._no_chain()

    def audit_anchor(self) -> Anchor:
        """Refused: an anchor has the heads of every host."""
        raise self._no_chain()

    def export_audit(self) -> Iterator[str]:
        """Refused: an export has the records of every host."""
        raise self._no_chain()

    def _no_chain(self) -> Forbidden:
        return Forbidden(
            f"this token may act on host {self._host!r} only; the chain of the audit trail covers every host"
        )

    def _only(self, host: str | None) -> str:
        """The one host. Raises Forbidden for another one, NotFound where the server does not manage the host."""
        if host not in (None, self._host):
            raise Forbidden(f"this token may act on host {self._host!r} only, not on {host!r}")
        if not self.hosts():
            raise NotFound("host", self._host)
        return self._host

    def _require_own_marker(self, marker: str, find: Callable[[str], Plan | Run]) -> None:
        """Raises Invalid for the id of another host's object, exactly like for an id that does not exist."""
        try:
            find(marker)
        except NotFound:
            raise Invalid("marker", marker, "the `next` of the previous page") from None

    def _require_own(self, kind: str, name: str, host: str) -> None:
        if host != self._host:
            raise NotFound(kind, name)
