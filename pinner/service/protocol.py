"""Service: pinner's use cases. LocalService answers them in this process, RemoteService asks a server. They raise the
errors of pinner.model.errors."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.model.guest.guest import GuestExclusion
from pinner.model.machine.interrupts import HostInterrupts
from pinner.model.machine.topology import Topology
from pinner.model.outcome.blame import Blame
from pinner.model.outcome.check import CheckReport
from pinner.model.outcome.measures import Measures, Span
from pinner.model.outcome.outcome import Probe, ProbeOptions, RunOutcome
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


@dataclass(frozen=True, slots=True)
class StrategyInfo:
    """A strategy."""

    name: str
    """The name, for a request."""
    summary: str
    """The strategy in one sentence."""
    parameters: tuple[str, ...]
    """The fields of a request that the strategy reads."""


class Service(Protocol):
    where: str
    """The URL of the server that answers, and goes on without this process; empty where this process does the work."""

    def hosts(self) -> tuple[str, ...]: ...

    def strategies(self) -> tuple[StrategyInfo, ...]: ...

    def observe(self, host: str, sample_seconds: float) -> Snapshot:
        """A new snapshot, which is not stored. 0 seconds: without CPU use, at once."""

    def topology(self, host: str) -> Topology:
        """Reads neither processes nor guests."""

    def capacity(self, host: str, vcpus: int | None = None, shape: GuestShape | None = None) -> Capacity:
        """How many more guests of so many vCPUs, or (None) of 1, 2, 4 and so on, fit; and exactly for guests of a
        shape, by planning them. Up to two seconds old. Raises Invalid."""

    def what_if(self, host: str, request: Request, scenario: Scenario, sample_seconds: float) -> WhatIf:
        """Nothing is stored."""

    def findings(self, host: str, sample_seconds: float) -> CheckReport:
        """By all installed checks, over two samples of the counters."""

    def measures(self, host: str, span: Span, guest: str | None = None, series: tuple[str, ...] = ()) -> Measures:
        """Of the host and its guests, or of one guest (name or UUID); ``series`` are names, none: all. Raises NotFound
        where nothing is measured, and Invalid."""

    def blame(self, host: str, guest: str, seconds: float) -> Blame:
        """The threads that run while those of a guest (name or UUID) wait. Raises NotFound, Invalid, NotPermitted where
        the kernel cannot trace, Busy and Gone."""

    def interrupts(self, host: str) -> HostInterrupts:
        """With the NAPI threads, their CPUs and the roles of these."""

    def take_snapshot(self, host: str, sample_seconds: float | None, caller: Caller) -> tuple[str, Snapshot]:
        """Returns its id (content hash), too. None: the configured sample."""

    def snapshot(self, snapshot: str) -> Snapshot: ...

    def plan(
        self,
        host: str,
        request: Request,
        snapshot: str | None,
        sample_seconds: float | None,
        caller: Caller,
        replaces: str | None = None,
    ) -> Plan:
        """From a stored snapshot or (None) a new one; the plan is stored. The audit trail names it as the successor of
        ``replaces``, a refused plan by the same request. Raises NotFound, Invalid and NoFit."""

    def plan_by_id(self, plan: str) -> Plan: ...

    def explain(self, plan: str, guest: str) -> Explanation:
        """``guest``: name or UUID. Raises Invalid for a policy's plan: it depends on the recorded placement of that
        time."""

    def plans(self, host: str | None, part: PageRequest) -> Page[PlanSummary]:
        """Of one host or (None) of all."""

    def apply(self, plan: str, options: ApplyOptions, caller: Caller) -> Run:
        """Start to apply a plan; the run continues by itself, and the server watches the guests after it. A refused
        plan (stale, blocked, busy) raises; NotFound where nothing is measured."""

    def rollback(self, run: str, caller: Caller) -> Run:
        """Returns the run of the rollback. Raises RunConflict for a run without changes in place."""

    def rollback_all(self, host: str, caller: Caller) -> Run:
        """Start to give everything on the host what it had before pinner first touched it. Raises PolicyConflict while
        a policy is enforced, and HostBusy during a run."""

    def run(self, run: str) -> Run: ...

    def outcome(self, run: str) -> RunOutcome:
        """Observed, not tested. Raises NotFound, and RunConflict for a run that has not ended."""

    def probe(self, plan: str, options: ProbeOptions, caller: Caller) -> Probe:
        """Start to switch between the present and the planned placements. The probe continues by itself, and ends with
        the placement that it found; with ``keep`` with the one that wins, if one does.

        Raises NotFound also where nothing is measured, Invalid, Blocked, PolicyConflict while a policy is enforced, and
        HostBusy during a run or another probe."""

    def probe_by_id(self, probe: str) -> Probe:
        """Raises NotFound."""

    def cancel_probe(self, probe: str, caller: Caller) -> Probe:
        """The placement is put back soon after. An ended probe stays as it is."""

    def runs(self, host: str | None, part: PageRequest, *, state: RunState | None = None) -> Page[Run]:
        """Of one host or (None) of all, in one state or (None) in all."""

    def entries(self, run: str) -> tuple[Entry, ...]:
        """A rollback has the entries of the run that it rolls back."""

    def follow(self, run: str) -> Iterator[RunProgress]:
        """First the final entries, then each that becomes final, until the run ends."""

    def policy(self, host: str) -> Policy:
        """Raises NotFound where the host has none."""

    def setback(self, host: str) -> Setback | None:
        """Why pinner set the mode to propose; None: it did not. Raises NotFound where the host has no policy."""

    def set_policy(self, host: str, policy: Policy, caller: Caller, expected: Expected = None) -> Policy:
        """A server follows the new policy within seconds. A new request is planned once, to refuse CPUs that the host
        lacks. Raises Invalid, NotFound (strategy, named guest), HostUnreachable, PreconditionFailed for no ``expected``
        revision."""

    def delete_policy(self, host: str, caller: Caller, expected: Expected = None) -> None:
        """The placement stays, and nobody corrects drift. Raises NotFound, and PreconditionFailed like
        ``set_policy``."""

    def drift(self, host: str) -> DriftReport:
        """Of the recorded placement. Under a new policy without one, CPU use is measured first."""

    def set_excluded(self, host: str, guest: str, excluded: bool, caller: Caller) -> GuestExclusion:
        """By a mark in the metadata of the guest (name or UUID)."""

    def guest_event(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        """Of a guest of the host (None: the only one). The policy controller observes the host at once. A doubled or
        late event, or one of a guest that is gone, does no harm."""

    def audit(
        self, host: str | None, actor: str | None, since: datetime | None, part: PageRequest
    ) -> Page[AuditRecord]:
        """The marker is a record's ``seq``."""

    def verify_audit(self, anchor: Anchor | None = None) -> Verification:
        """Each against the other and against the anchor."""

    def audit_anchor(self) -> Anchor:
        """The signed heads of all agents now. Raises HostUnreachable; NotFound where no agent has a trail."""

    def export_audit(self) -> Iterator[str]:
        """JSON lines, each with its line end. Raises like ``audit_anchor``."""
