"""Reconciler finds drift and, by the policy's mode, reports it, proposes a plan, or applies it. RepackProposer proposes
a plan for guests that have spread."""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from pinner import codec
from pinner.model.change import Group, PlannedChange, group_of, is_of_the_host
from pinner.model.cpuset import CpuSet
from pinner.model.errors import NovaConflict, PinnerError, PreconditionFailed, Refused, StalePlan
from pinner.model.event import HostEvent
from pinner.model.plan.plan import Placement, Plan
from pinner.model.plan.request import Request
from pinner.model.policy import Backoffs, Drift, DriftReport, Policy, Repack
from pinner.model.run.audit import POLICY_ACTOR, AuditAction, Caller, audit_event
from pinner.model.run.journal import Run
from pinner.model.snapshot import Snapshot
from pinner.model.text import listed
from pinner.planning import planner
from pinner.planning.moves import RepackRule, RepackWatch, pressure, refusal
from pinner.planning.placement import reasoned, record
from pinner.planning.policy.backoff_counts import counted_as, leave_out, restarts, with_backoff
from pinner.planning.policy.backoff_counts import reasons as backoff_reasons
from pinner.planning.policy.release import release
from pinner.service.hosts.hosts import Hosts
from pinner.service.hosts.plan_maker import PlanMaker
from pinner.service.policy.observation import Observation, Observer, not_in_place
from pinner.service.policy.policies import HostPolicies
from pinner.service.policy.stored_backoffs import HostBackoffs, are_of_the_host, failures_of, moving_targets
from pinner.service.runs.runs import RunManager
from pinner.store.repositories import Store

LOG = logging.getLogger(__name__)

ATTEMPTS = 3
"""Plans of a reconcile, if the host changes before each is applied."""

MAX_ATTEMPTS = 8
"""The same, if other targets keep moving each time."""

_NAMED = 5


class RepackProposer:
    """Stores a plan where a re-pack pays. A person applies it, never a policy. A restart begins anew."""

    def __init__(self, plans: PlanMaker, rule: RepackRule, now: Callable[[], datetime]) -> None:
        self._plans = plans
        self._rule = rule
        self._now = now
        self._watches: dict[str, RepackWatch] = {}
        self._proposals: dict[str, Repack] = {}

    def observe(self, host: str, seen: Observation, caller: Caller) -> None:
        """A host that drifts, or whose policy only observes, has no proposal."""
        policy, placement, plan = seen.policy, seen.placement, seen.plan
        if policy is None or placement is None or plan is None or plan.changes or policy.mode == "observe":
            self._proposals.pop(host, None)
            return
        now, rule, spread = self._now(), self._rule, pressure(plan.objective)
        watch = self._watches.get(host, RepackWatch()).observed(rule, spread, now)
        if watch.above_since is None:
            self._proposals.pop(host, None)
        if watch.is_due(rule, now):
            watch = watch.paused(rule, now)
            self._proposals[host] = self._dry_run(seen.snapshot, policy.request, placement, spread, caller)
        self._watches[host] = watch

    def _dry_run(
        self, snapshot: Snapshot, request: Request, placement: Placement, spread: float, caller: Caller
    ) -> Repack:
        plan = planner.repack(snapshot, codec.content_hash(snapshot), request, placement)
        if why := refusal(self._rule, plan):
            return Repack("", spread, why)
        self._plans.keep(snapshot, plan, caller)
        return Repack(plan.id, spread)

    def proposal(self, host: str) -> Repack | None:
        return self._proposals.get(host)


class Reconciler:
    """Several threads may use it; one thread at a time changes a host."""

    def __init__(
        self,
        hosts: Hosts,
        policies: HostPolicies,
        plans: PlanMaker,
        runs: RunManager,
        store: Store,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        sample_seconds: float,
        repacks: RepackProposer,
    ) -> None:
        self._repacks = repacks
        self._hosts = hosts
        self._policies = policies
        self._plans = plans
        self._runs = runs
        self._store = store
        self._now = now
        self._new_id = new_id
        self._sample_seconds = sample_seconds
        self._observer = Observer(hosts, policies, store, now)
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._backoffs = HostBackoffs(store, now)
        self._proposed: dict[str, Plan] = {}
        self._recorded_drift: dict[str, frozenset[object]] = {}
        self._reasons: dict[str, str] = {}

    def policy(self, host: str) -> Policy:
        return self._store.policies.get(host)

    def host_events(self, host: str, after: int, timeout: float) -> tuple[HostEvent, ...]:
        """Those that may matter to the host's policy."""
        return self._hosts.agent(host).host_events(after, timeout, self._observer.names_to_watch(host))

    def further_events(self, host: str, after: int) -> tuple[HostEvent, ...]:
        """Does not wait, and leaves the names to watch as they are."""
        return self._hosts.agent(host).host_events(after, 0.0, None)

    def release_guest(self, host: str, guest: str, within: CpuSet, reason: str, caller: Caller) -> Run | None:
        """Restore a guest's (UUID) affinities from before its placement; None where no change is needed. ``within``:
        its destination's CPUs; empty: not known. No reconcile of the host runs meanwhile. Raises like ``reconcile``."""
        with self._locks[host]:
            taken = self._hosts.snapshot(host, 0.0)
            done = self._store.runs.recorded_changes(host, guest)
            plan = release(taken, codec.content_hash(taken), guest, done, within, reason)
            if not plan.changes:
                return None
            self._plans.keep(taken, plan, caller)
            return self._observer.note_release(host, plan, self._runs.run_to_end(plan, caller, "release"))

    def drift(self, host: str) -> DriftReport:
        self._hosts.require(host)
        return self._report(host, self._observe(host, self._measure(host, measured=False)))

    def reconcile(self, host: str, cause: str, *, measured: bool = False) -> DriftReport:
        """Observe the host and do what its policy's mode says; the audit trail gets ``cause``. ``measured``: CPU use is
        measured first, to find newly busy processes; always without a recorded placement. A target that cannot be
        placed backs off, and delays no other one. Raises HostBusy during another run, StalePlan, NovaConflict or
        Refused where the host changes at each attempt, and the errors of agent and store."""
        measurement = self._measure(host, measured=measured)
        refusals: list[PinnerError] = []
        known: set[Group] = set()
        with self._locks[host]:
            while True:
                try:
                    return self._attempt(host, measurement, cause)
                except (StalePlan, NovaConflict, Refused) as stale:
                    LOG.info("host %s changed before the plan was applied: %s", host, stale)
                    refusals.append(stale)
                    moving = {group: why for group, why in moving_targets(refusals).items() if group not in known}
                    if len(refusals) >= (MAX_ATTEMPTS if moving else ATTEMPTS):
                        raise
                self._backoffs.back_off(host, moving, self._caller(cause))
                known |= moving.keys()

    def _caller(self, cause: str) -> Caller:
        return Caller(POLICY_ACTOR, cause, f"req-{self._new_id()}")

    def _attempt(self, host: str, measurement: Snapshot | None, cause: str) -> DriftReport:
        for _ in range(ATTEMPTS):
            seen = self._observe(host, measurement)
            if seen.policy is None or seen.plan is None:
                return self._end(host, seen, seen.error or "it has no policy")
            caller, wanted = self._caller(cause), _without_backoffs(seen, seen.plan)
            why = _nothing_to_apply(wanted, seen.policy)
            self._record_observed(host, seen, wanted, caller, applies=not why)
            if why := why or _why_not_now(seen):
                return self._end(host, seen, why)
            if report := self._enforce(host, seen, wanted, caller):
                return report
        return self._end(host, self._observe(host, measurement), f"{ATTEMPTS} runs were made")

    def _end(self, host: str, seen: Observation, why: str) -> DriftReport:
        if self._reasons.get(host) != why:
            LOG.info("host %s: %s", host, why)
            self._reasons[host] = why
        return self._report(host, seen)

    def _record_observed(self, host: str, seen: Observation, wanted: Plan, caller: Caller, *, applies: bool) -> None:
        plan, mode = seen.plan or wanted, seen.policy.mode if seen.policy else None
        if not plan.changes or (seen.placement is None and not applies):
            self._accept(seen, wanted if wanted.id == plan.id else plan, caller)
        self._repacks.observe(host, seen, caller)
        stays = mode != "enforce" or (seen.error and not wanted.blocked)
        if stays or not applies:  # after a run, guests that are left alone are judged anew
            alone = tuple(
                drift
                for drift in seen.drifts
                if drift.cause == "guest" or group_of(drift.target) in seen.left_alone.reasons
            )
            self._record_drift(host, seen, seen.drifts if stays else alone, caller)
        if mode == "propose":
            self._propose(host, seen, wanted, caller)

    def _enforce(self, host: str, seen: Observation, wanted: Plan, caller: Caller) -> DriftReport | None:
        """None, to observe again: the whole plan was undone because of some targets, which back off now; or it is
        applied, and guests that were left alone may have a place."""
        self._plans.keep(seen.snapshot, wanted, caller)
        try:
            run = self._runs.run_to_end(wanted, caller, "apply", seen.policy)
        except PreconditionFailed:
            raise StalePlan(wanted.id, ("the host's policy was replaced",)) from None
        failures = {} if run.state == "applied" else failures_of(self._runs.entries(run.id))
        remaining = seen.drifts
        # Also those that could not be placed: each start is a run.
        counted = restarts(wanted, remaining)
        if run.state in ("applied", "applied_partly"):
            placed = {change.target.key for change in wanted.changes if group_of(change.target) not in failures}
            ended = [drifted for drifted in remaining if not drifted.backoff_until and drifted.target.key in placed]
            remaining = tuple(drift for drift in remaining if drift not in ended)
            left_out = not_in_place(seen, wanted, failures)
            placement = record(wanted, seen.snapshot, seen.placement, unplaced=left_out)
            number = self._store.runs.number(run.id)
            self._store_placement(replace(seen, run_seq=number, last_run=number), placement)
            counted += [drift for drift in ended if drift not in counted]
        backoffs = self._backoffs.count_corrected(host, counted)
        self._record_backoffs(host, counted, backoffs, caller)
        if failures:
            backoffs = self._backoffs.back_off(host, failures, caller)
        others = {group_of(change.target) for change in wanted.changes} - failures.keys()
        state = f"run {run.id} is {run.state}"
        if run.state == "undone" and failures and others and not are_of_the_host(failures):
            LOG.info("host %s: %s; the others are tried without the targets that failed", host, state)
            return None
        if run.state == "applied" and seen.left_alone.reasons:
            LOG.info("host %s: %s; the guests that were left alone are judged anew", host, state)
            return None
        error = "" if run.state == "applied" else f"{state}: {run.error}"
        seen = replace(seen, drifts=with_backoff(remaining, backoffs, self._now()), error=error)
        return self._end(host, seen, error or state)

    def _propose(self, host: str, seen: Observation, wanted: Plan, caller: Caller) -> None:
        """A blocked plan is not proposed, and the same changes only once."""
        last = self._proposed.pop(host, None)
        if wanted.blocked or not wanted.changes:
            return
        if last is None or _effect(last) != _effect(wanted) or last.basis.fingerprint != wanted.basis.fingerprint:
            self._plans.keep(seen.snapshot, wanted, caller)
            last = wanted
        self._proposed[host] = last

    def _observe(self, host: str, measurement: Snapshot | None) -> Observation:
        return self._observer.observe(host, measurement, self._backoffs.of(host))

    def _measure(self, host: str, *, measured: bool) -> Snapshot | None:
        """Takes seconds, so call it before the lock is taken."""
        policy = self._policies.find(host)
        if measured or (policy is not None and self._observer.placement(host, policy) is None):
            return self._hosts.agent(host).snapshot(self._sample_seconds)
        return None

    def _accept(self, seen: Observation, plan: Plan, caller: Caller) -> None:
        """Record a placement without a run: the host is as planned, or this mode does not change it."""
        pending = {change.target.key for change in plan.changes}
        placement = record(plan, seen.snapshot, seen.placement, unplaced=pending)
        if seen.placement is not None and placement.places == seen.placement.places:
            placement = replace(placement, plan=seen.placement.plan)
        else:
            self._plans.keep(seen.snapshot, plan, caller)
        self._store_placement(seen, placement)

    def _store_placement(self, seen: Observation, placement: Placement) -> None:
        """A run that was applied or undone meanwhile prevents it."""
        before = seen.placement
        if before is None or before.placed != placement.placed or before.roles != placement.roles:
            self._store.placements.put(placement, self._now(), seen.run_seq, seen.last_run)

    def _record_drift(self, host: str, seen: Observation, drifts: tuple[Drift, ...], caller: Caller) -> None:
        """Drifts in backoff are neither written to the audit trail nor counted. Each start of a guest counts anew."""
        starts = {
            guest.uuid: (guest.pid, min((thread.started for thread in guest.emulator.threads), default=0))
            for guest in seen.snapshot.guests
        }
        keys = [(drift.target.key, drift.cause, starts.get(drift.target.owner)) for drift in drifts]
        before = self._recorded_drift.get(host, frozenset())
        self._recorded_drift[host] = frozenset(keys)
        pairs = zip(drifts, keys, strict=True)
        new = tuple(drift for drift, key in pairs if key not in before and not drift.backoff_until)
        if new:
            self._backoffs.count_corrected(host, new)
            alone = seen.left_alone.reasons
            lines = [
                alone.get(group_of(drift.target)) or f"{drift.target}: {drift.detail or drift.cause}" for drift in new
            ]
            named = listed(list(dict.fromkeys(lines)), _NAMED, "; ")
            result = f"{named}; {seen.error}" if seen.error else named
            self._record(caller, AuditAction.DRIFT_FOUND, host, f"{len(new)} targets", result)

    def _record_backoffs(self, host: str, ended: Iterable[Drift], backoffs: Backoffs, caller: Caller) -> None:
        for drift in ended:
            key = counted_as(drift)
            state = None if key is None else backoffs.get(key)
            if state is not None and state.times >= state.free:
                until = state.backoff_until.isoformat(timespec="seconds")
                result = f"{drift.detail or drift.cause}: reconciled {state.times} times, skipped until {until}"
                self._record(caller, AuditAction.DRIFT_BACKOFF, host, str(drift.target), result)

    def _report(self, host: str, seen: Observation) -> DriftReport:
        proposed = self._proposed.get(host)
        fits = proposed is not None and seen.plan is not None and _effect(proposed) == _effect(seen.plan)
        return DriftReport(
            host=host,
            at=seen.snapshot.taken_at,
            mode=seen.policy.mode if seen.policy else None,
            placement=seen.placement.plan if seen.placement else "",
            drifts=seen.drifts,
            unplaced=seen.plan.unplaced if seen.plan else (),
            proposed=proposed.id if proposed is not None and fits else "",
            error=seen.error or seen.left_alone.why,
            migrating=tuple(guest.name for guest in seen.snapshot.guests if guest.is_migrating),
            repack=self._repacks.proposal(host),
            setback=self._store.policies.setback(host),
        )

    def _record(self, caller: Caller, action: AuditAction, host: str, subject: str, result: str) -> None:
        self._store.audit.append(audit_event(caller, self._now(), action, host, subject, result))


def _without_backoffs(seen: Observation, plan: Plan) -> Plan:
    whys = {change.target.key: seen.left_alone.reasons.get(group_of(change.target)) for change in plan.changes}
    reasons = {key: why for key, why in whys.items() if why} | backoff_reasons(seen.drifts)
    return reasoned(leave_out(plan, reasons, seen.placement, seen.snapshot), seen.drifts)


def _nothing_to_apply(wanted: Plan, policy: Policy) -> str:
    if wanted.blocked:
        return f"the plan is blocked: {wanted.blocked}"
    if not wanted.changes:
        return "it is as planned"
    return "" if policy.mode == "enforce" else f"{len(wanted.changes)} changes are left, the policy says {policy.mode}"


def _why_not_now(seen: Observation) -> str:
    """A change of the host itself is made for all targets: while it backs off, nothing is changed."""
    waiting = (drift.target for drift in seen.drifts if is_of_the_host(drift.target) and drift.backoff_until)
    return next((f"{target} backs off, and all other changes need it" for target in waiting), seen.error)


def _effect(plan: Plan) -> list[PlannedChange]:
    return [replace(change, reason="") for change in plan.changes]
