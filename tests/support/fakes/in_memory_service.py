"""pinner's service over dictionaries, for tests of REST and the CLI that need no host."""

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Literal

from support.fakes.probed_host import ended_probe
from support.values import EVIL, NOON, cpus, make_change, make_entries, make_plan, make_run, sample_snapshot

from pinner import codec
from pinner.checks.irqs import interrupt_map
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import (
    NOTHING_CHANGED,
    Blocked,
    Invalid,
    NoPolicy,
    NotFound,
    PolicyConflict,
    PreconditionFailed,
    RunConflict,
    StalePlan,
    WorsePlan,
)
from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.model.guest.guest import GuestExclusion
from pinner.model.machine.interrupts import DeviceIrq, DeviceIrqs, HostInterrupts
from pinner.model.machine.topology import Topology
from pinner.model.outcome.blame import Blame, Culprit, Waited
from pinner.model.outcome.check import CheckReport
from pinner.model.outcome.measures import HOST, History, Measures, Span, require_series, series_of
from pinner.model.outcome.outcome import MEASURES, Comparison, ObservedMeasure, Probe, ProbeOptions, RunOutcome, Watch
from pinner.model.page import Page, PageRequest
from pinner.model.plan.plan import LeftOut, Plan, PlanSummary
from pinner.model.plan.request import AUTO, Request
from pinner.model.policy import Drift, DriftReport, Expected, Policy, Setback
from pinner.model.questions import Capacity, Explanation, GuestShape, Scenario, WhatIf, with_sizes
from pinner.model.reading import HostReading, HostSample, IrqCounts, ThreadTimes
from pinner.model.run.agent_audit import Anchor, SignedHead
from pinner.model.run.audit import AuditRecord, Caller
from pinner.model.run.journal import ApplyOptions, Entry, Run, RunProgress, RunState
from pinner.model.run.verification import AgentTrail, Verification, verification
from pinner.model.snapshot import Snapshot
from pinner.planning.questions import capacity
from pinner.planning.questions.capacity import shape_rooms
from pinner.planning.questions.explanation import explain_placement
from pinner.planning.questions.whatif import what_if
from pinner.service.audit.audit_export import export_lines
from pinner.service.hosts.checker import HostChecker
from pinner.service.protocol import StrategyInfo

UNPLACED = Target("guest", "00000000-0000-4000-8000-000000000009", None, EVIL)
KEY = "A" * 43 + "="
SIGNED_HEAD = SignedHead("h1", 1, "0" * 64, 0, "", NOON.isoformat(), KEY, "A" * 86 + "==")
"""A head with a wrong signature, of an agent that made one record."""
STRATEGIES = tuple(
    StrategyInfo(name, f"the strategy {name}", ("guests",)) for name in ("shared-pool", "numa-local", "isolated")
)


class InMemoryService:
    """The service with one host, h1. Runs end when ``finish`` is called, or at once while ``instant`` is set."""

    where = ""

    def __init__(self) -> None:
        self.instant = True
        self.stale: set[str] = set()
        self.replaced: dict[str, str] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.stored: dict[str, Plan] = {}
        self.run_list: dict[str, Run] = {}
        self.journal: dict[str, tuple[Entry, ...]] = {}
        self.probes: dict[str, Probe] = {}
        self.setbacks: dict[str, Setback] = {}
        self.records: list[AuditRecord] = []
        self.run_changed = threading.Condition()
        self.policies: dict[str, Policy] = {}
        self.excluded: dict[str, bool] = {}
        self.events: list[GuestEvent] = []

    def state(self) -> tuple[object, ...]:
        """Everything that a call can change."""
        runs = dict(self.stored), dict(self.run_list), dict(self.snapshots), tuple(self.records), dict(self.probes)
        return (*runs, dict(self.policies), dict(self.excluded), tuple(self.events))

    def hosts(self) -> tuple[str, ...]:
        return ("h1",)

    def strategies(self) -> tuple[StrategyInfo, ...]:
        return STRATEGIES

    def observe(self, host: str, sample_seconds: float) -> Snapshot:
        _known("host", host, self.hosts())
        return replace(sample_snapshot(), sample_seconds=sample_seconds)

    def topology(self, host: str) -> Topology:
        return self.observe(host, 0.0).topology

    def capacity(self, host: str, vcpus: int | None = None, shape: GuestShape | None = None) -> Capacity:
        found = capacity.capacity(self.observe(host, 0.0), Request())
        found = with_sizes(found, (1, 2, 4) if vcpus is None else (vcpus,))
        rooms = shape_rooms(self.observe(host, 0.0), Request(), shape) if shape else ()
        return replace(found, shape=shape, fitting=rooms)

    def what_if(self, host: str, request: Request, scenario: Scenario, sample_seconds: float) -> WhatIf:
        return what_if(self.observe(host, sample_seconds), request, scenario)

    def findings(self, host: str, sample_seconds: float) -> CheckReport:
        """One vCPU of the guest waits half of the time."""
        taken = self.observe(host, 0.0)
        later = HostSample(threads={201: ThreadTimes(0, round(sample_seconds * 5e8))})
        samples = (HostSample(threads={201: ThreadTimes(0, 0)}), later) if sample_seconds else (later,)
        return HostChecker().check(HostReading(taken, samples, sample_seconds))

    def measures(self, host: str, span: Span, guest: str | None = None, series: tuple[str, ...] = ()) -> Measures:
        """The vCPUs of the guest wait longer and longer."""
        require_series(series)
        names = {HOST: "", **{each.uuid: each.name for each in self.observe(host, 0.0).guests}}
        found = tuple(
            History(subject, name, NOON, 5, {each.name: (None, 10.0, 20.0, 80.0) for each in wanted})
            for subject, name in names.items()
            if guest in (None, subject, name) and (wanted := series_of(subject, series))
        )
        if not found:
            raise NotFound("measures of guest", str(guest))
        return Measures(host, span.step or 5, series_of("", series), series_of(HOST, series), found)

    def blame(self, host: str, guest: str, seconds: float) -> Blame:
        """A process of another user delays the guest."""
        taken = self.observe(host, 0.0)
        if not any(guest in (each.uuid, each.name) for each in taken.guests):
            raise NotFound("guest", guest)
        culprits = (Culprit(7, EVIL, 6, "cron.service", "", 40.0, 0.8), Culprit(0, "idle", 0, "", "", 10.0, 0.2))
        return Blame(EVIL, seconds, (Waited("vcpu", 50.0),), culprits, 3)

    def interrupts(self, host: str) -> HostInterrupts:
        """One interrupt with a hostile name."""
        irqs = DeviceIrqs((DeviceIrq(40, EVIL, "0000:3b:00.0", cpus("1"), cpus("1")),))
        taken = replace(self.observe(host, 0.0), irqs=irqs)
        return interrupt_map(HostReading(taken, (HostSample(irqs=(IrqCounts(40, EVIL, {1: 5}),)),)))

    def take_snapshot(self, host: str, sample_seconds: float | None, caller: Caller) -> tuple[str, Snapshot]:
        taken = self.observe(host, 5.0 if sample_seconds is None else sample_seconds)
        name = codec.content_hash(taken)
        self.snapshots[name] = taken
        self._record("snapshot.take", name, caller)
        return name, taken

    def snapshot(self, snapshot: str) -> Snapshot:
        _known("snapshot", snapshot, self.snapshots)
        return self.snapshots[snapshot]

    def plan(
        self,
        host: str,
        request: Request,
        snapshot: str | None,
        sample_seconds: float | None,
        caller: Caller,
        replaces: str | None = None,
    ) -> Plan:
        basis = self.observe(host, sample_seconds or 0.0) if snapshot is None else self.snapshot(snapshot)
        _known("strategy", request.strategy, [strategy.name for strategy in STRATEGIES])
        if replaces is not None:
            self.plan_by_id(replaces)
        for guest in request.guests:
            _known("guest", guest, [guest.name for guest in basis.guests])
        for field in ("housekeeping", "emulator"):
            value = getattr(request, field)
            absent = CpuSet() if value == AUTO else CpuSet.parse(value, field) - basis.topology.online
            if absent:
                raise Invalid(field, value, f"CPUs of this host; it has no {absent}")
        changes = (make_change(90, after="0"), make_change(1000, before="0-3", after="1", threads=2))
        left_out = (LeftOut(UNPLACED, f"the reason is {EVIL}"),)
        plan = make_plan(str(uuid.uuid4()), codec.content_hash(basis), changes, host)
        plan = replace(plan, request=request, unplaced=left_out, skipped=left_out, warnings=(f"warning {EVIL}",))
        self.stored[plan.id] = plan
        if replaces is not None:
            self.replaced[plan.id] = replaces
        self._record("plan.create", plan.id, caller)
        return plan

    def plan_by_id(self, plan: str) -> Plan:
        _known("plan", plan, self.stored)
        return self.stored[plan]

    def explain(self, plan: str, guest: str) -> Explanation:
        found = self.plan_by_id(plan)
        return explain_placement(self.observe(found.host, 0.0), found.request, guest)

    def plans(self, host: str | None, part: PageRequest) -> Page[PlanSummary]:
        rows = [
            PlanSummary(p.id, p.host, p.request.strategy, NOON, len(p.changes), len(p.unplaced), p.blocked)
            for p in self.stored.values()
        ]
        return _page([row for row in rows if host in (None, row.host)], lambda row: row.id, part)

    def apply(self, plan: str, options: ApplyOptions, caller: Caller) -> Run:
        found = self.plan_by_id(plan)
        if plan in self.stale:
            raise StalePlan(plan, ("process 90 is gone",))
        if found.blocked:
            raise Blocked(plan, found.blocked)
        if found.worse and not options.allow_worse:
            raise WorsePlan(plan, found.worse, ())
        return self._start(plan=plan, actor=caller.actor, origin=caller.origin, **options.kept)

    def rollback(self, run: str, caller: Caller) -> Run:
        state = self.run(run).state
        if state not in ("applied", "applied_partly"):
            raise RunConflict(run, state, "only an applied run can be rolled back")
        if not self.entries(run):
            raise RunConflict(run, state, NOTHING_CHANGED)
        return self._start(kind="rollback", undoes=run, actor=caller.actor, origin=caller.origin)

    def rollback_all(self, host: str, caller: Caller) -> Run:
        _known("host", host, self.hosts())
        if host in self.policies and self.policies[host].mode == "enforce":
            raise PolicyConflict(host, "the rollback of all runs")
        return self._start(kind="rollback", plan="", actor=caller.actor, origin=caller.origin)

    def _start(self, **values: object) -> Run:
        run = make_run(f"run-{len(self.run_list) + 1}", **values)
        self.run_list[run.id] = run
        self.journal[run.id] = make_entries(run.id)
        if self.instant:
            self.finish(run.id)
        return run

    def finish(self, run: str) -> None:
        """Let the run end successfully."""
        with self.run_changed:
            self.journal[run] = tuple(replace(entry, state="done") for entry in self.journal[run])
            end = "applied" if self.run_list[run].kind == "apply" else "rolled_back"
            self.run_list[run] = replace(self.run_list[run], state=end, ended_at=NOON)
            self.run_changed.notify_all()

    def run(self, run: str) -> Run:
        _known("run", run, self.run_list)
        return self.run_list[run]

    def outcome(self, run: str) -> RunOutcome:
        """Drops are higher after the run; the other measures are not known. A watch finds that and undoes nothing."""
        found = self.run(run)
        if found.ended_at is None:
            raise RunConflict(run, found.state, "its outcome can be measured after its end")
        higher = Comparison(1.0, 9.0, 8.0, 1.0)
        measures = tuple(
            ObservedMeasure(each, 60, 58, higher, Comparison(0.0, 0.5, 0.5, 0.6))
            if each.name == "drops"
            else ObservedMeasure(each, 0, 0, None, None)
            for each in MEASURES
        )
        watch = Watch("worse", NOON, "worse than before the run: drops") if found.watch_seconds else None
        label: Literal["observed, not tested"] = "observed, not tested"
        return RunOutcome(run, label, (), (EVIL,), (), NOON, NOON, 5, measures, (f"note {EVIL}",), True, watch)

    def probe(self, plan: str, options: ProbeOptions, caller: Caller) -> Probe:
        plans = [self.plan_by_id(name) for name in (plan, *options.rivals)]
        for found in plans:
            if found.blocked:
                raise Blocked(found.id, found.blocked)
        ended = ended_probe(f"probe-{len(self.probes) + 1}", plans, options, caller, EVIL)
        self.probes[ended.id] = ended
        return ended if self.instant else replace(ended, state="running", ended_at=None, outcome=None, ranking=None)

    def probe_by_id(self, probe: str) -> Probe:
        _known("probe", probe, self.probes)
        return self.probes[probe]

    def cancel_probe(self, probe: str, caller: Caller) -> Probe:
        return self.probe_by_id(probe)

    def runs(self, host: str | None, part: PageRequest, *, state: RunState | None = None) -> Page[Run]:
        rows = [run for run in self.run_list.values() if host in (None, run.host) and state in (None, run.state)]
        return _page(rows, lambda run: run.id, part)

    def entries(self, run: str) -> tuple[Entry, ...]:
        self.run(run)
        return self.journal[run]

    def follow(self, run: str) -> Iterator[RunProgress]:
        with self.run_changed:
            self.run_changed.wait_for(lambda: self.run(run).state != "running")
        entries = self.entries(run)
        for done, entry in enumerate(entries, 1):
            yield RunProgress(self.run(run), done, len(entries), entry)
        yield RunProgress(self.run(run), len(entries), len(entries), None)

    def policy(self, host: str) -> Policy:
        _known("host", host, self.hosts())
        if host not in self.policies:
            raise NoPolicy(host)
        return self.policies[host]

    def setback(self, host: str) -> Setback | None:
        self.policy(host)
        return self.setbacks.get(host)

    def set_policy(self, host: str, policy: Policy, caller: Caller, expected: Expected = None) -> Policy:
        _known("host", host, self.hosts())
        _known("strategy", policy.request.strategy, [strategy.name for strategy in STRATEGIES])
        self._require(host, expected)
        self.policies[host] = policy
        self.setbacks.pop(host, None)
        self._record("policy.set", host, caller)
        return policy

    def delete_policy(self, host: str, caller: Caller, expected: Expected = None) -> None:
        self._require(host, expected)
        self.policy(host)
        del self.policies[host]
        self._record("policy.delete", host, caller)

    def _require(self, host: str, expected: Expected) -> None:
        found = codec.content_hash(self.policies[host]) if host in self.policies else ""
        if expected is not None and found not in expected:
            raise PreconditionFailed(f"policy of host {host}", expected, found)

    def drift(self, host: str) -> DriftReport:
        _known("host", host, self.hosts())
        policy = self.policies.get(host)
        if policy is None:
            return DriftReport(host, NOON, None, "", ())
        change = make_change(90, after="0")
        target = replace(change.target, name=EVIL)
        drift = Drift(
            target, change.after, change.before, "systemd", f"AllowedCPUs of {EVIL}", times=4, backoff_until=NOON
        )
        return DriftReport(host, NOON, policy.mode, "plan-1", (drift,), (LeftOut(UNPLACED, "no room"),), "plan-2", EVIL)

    def set_excluded(self, host: str, guest: str, excluded: bool, caller: Caller) -> GuestExclusion:
        (found,) = self.observe(host, 0.0).guests
        _known("guest", guest, (found.name, found.uuid))
        self.excluded[found.uuid] = excluded
        self._record("guest.exclude", found.uuid, caller)
        return GuestExclusion(found.uuid, found.name, excluded)

    def guest_event(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        host = host or self.hosts()[0]
        _known("host", host, self.hosts())
        known = any(each.uuid == event.guest for each in self.observe(host, 0.0).guests)
        self._record("guest.event", event.guest, caller)
        self.events.append(event)
        return GuestEventOutcome(host, event.guest, known, "")

    def audit(
        self, host: str | None, actor: str | None, since: datetime | None, part: PageRequest
    ) -> Page[AuditRecord]:
        rows = [
            record
            for record in self.records
            if host in (None, record.host) and actor in (None, record.actor) and (since is None or record.at >= since)
        ]
        return _page(rows, lambda record: str(record.seq), part)

    def verify_audit(self, anchor: Anchor | None = None) -> Verification:
        agents = (AgentTrail("h1", 1, SIGNED_HEAD),)
        return verification(len(self.records), "0" * 64, agents, ())

    def audit_anchor(self) -> Anchor:
        return Anchor(1, (SIGNED_HEAD,))

    def export_audit(self) -> Iterator[str]:
        rows = ({**codec.plain(record), "at": record.at.isoformat()} for record in self.records)
        return export_lines(self.audit_anchor(), [SIGNED_HEAD], [], rows)

    def _record(self, action: str, subject: str, caller: Caller) -> None:
        seq = len(self.records) + 1
        self.records.append(
            AuditRecord(
                seq, NOON, caller.actor, caller.origin, action, "h1", subject, "", "", "ok", caller.request_id, "", ""
            )
        )


def _known(kind, name, names):
    if name not in names:
        raise NotFound(kind, name, tuple(names))


def _page(rows, key, part):
    rows = list(reversed(rows)) if part.direction == "desc" else list(rows)
    names = [key(row) for row in rows]
    if part.marker and part.marker not in names:
        raise Invalid("marker", part.marker, "the next of a previous page")
    start = names.index(part.marker) + 1 if part.marker else 0
    end = start + part.limit
    items = tuple(rows[start:end])
    return Page(items, key(items[-1]) if end < len(rows) else "")
