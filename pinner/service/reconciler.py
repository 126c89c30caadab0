"""Keeping a host as its policy wants it: drift is found, and by the policy's mode reported, planned for, or mended."""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from pinner import codec
from pinner.agent.protocol import Agent
from pinner.model.audit import Caller
from pinner.model.change import Change
from pinner.model.drift import Drift, DriftReport
from pinner.model.errors import Invalid, NoFit, NotFound, NovaConflict, PinnerError, PolicyConflict, StalePlan
from pinner.model.event import HostEvent
from pinner.model.journal import Run, RunKind
from pinner.model.placement import Placement
from pinner.model.plan import Plan
from pinner.model.policy import Policy
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.placement import backoff
from pinner.planning.placement.drift import OTHERS, drifts, reasoned
from pinner.planning.placement.guest_hints import with_guest_hints
from pinner.planning.placement.process_matching import key, pruned, watched, with_loads
from pinner.planning.placement.record import record
from pinner.planning.strategy import installed
from pinner.store.audit import audit_event
from pinner.store.repositories import Store

LOG = logging.getLogger(__name__)

ACTOR = "policy"
"""Who it is in the audit trail that no person asked."""

ATTEMPTS = 3
"""How often a plan is made anew where the host moved on before it was applied."""

_NAMED = 5
"""How many drifts an audit record names."""


@dataclass(frozen=True, slots=True)
class _Observation:
    """A host as it is, against what its policy wants."""

    policy: Policy | None
    placement: Placement | None
    snapshot: Snapshot
    plan: Plan | None
    drifts: tuple[Drift, ...]
    error: str


class Reconciler:
    """The policies of hosts. May be used by several threads; a host is mended by one at a time."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        store: Store,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        sample_seconds: float,
        carry_out: Callable[[Plan, Caller, RunKind], Run],
    ) -> None:
        """``carry_out`` applies a stored plan and returns when the run has ended; it raises refusals."""
        self._agents = agents
        self._store = store
        self._now = now
        self._new_id = new_id
        self._sample_seconds = sample_seconds
        self._carry_out = carry_out
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._backoffs: dict[str, backoff.Backoffs] = {}
        self._proposed: dict[str, Plan] = {}
        self._noticed: dict[str, frozenset[object]] = {}

    def policy(self, host: str) -> Policy:
        """The host's policy. Raises NotFound."""
        return self._store.policies.get(host)

    def put(self, host: str, policy: Policy, caller: Caller) -> Policy:
        """Give the host a policy. Raises NotFound for an unknown strategy."""
        if policy.request.strategy not in installed():
            raise NotFound("strategy", policy.request.strategy, tuple(installed()))
        before = self._find(host)
        was, now = _summary(before) if before else "", self._now()
        event = audit_event(caller, now, "policy.set", host, host, "done", before=was, after=_summary(policy))
        self._store.policies.put(host, policy, now, event)
        with suppress(PinnerError):  # the policy is set all the same: whoever keeps the host reads it now and then
            self._agents[host].policy_set()
        return policy

    def permit(self, host: str, what: str, request: Request | None) -> None:
        """Raises PolicyConflict where the policy is enforced and would take this back: everything but a plan of its own
        request."""
        policy = self._find(host)
        if policy is None or policy.mode != "enforce":
            return
        if request is None or replace(request, rebalance=False) != policy.request:
            raise PolicyConflict(host, what)

    def host_events(self, host: str, after: int, timeout: float) -> tuple[HostEvent, ...]:
        """What happened on the host that may matter to its policy. See Agent.news."""
        policy = self._find(host)
        placement = self._placement(host, policy)
        names = {*(watched(placement) if placement else ()), *(policy.request.processes if policy else ())}
        return self._agents[host].host_events(after, timeout, tuple(sorted(names)))

    def snapshot_of(self, host: str, sample_seconds: float) -> Snapshot:
        """The host as its agent sees it, and what events told of its guests."""
        taken = self._agents[host].snapshot(sample_seconds)
        return with_guest_hints(taken, self._store.guest_hints.of(host), self._now())

    def apply_between(self, host: str, make: Callable[[Snapshot], Plan], kind: RunKind, caller: Caller) -> Run | None:
        """Make a plan for the host as it is now and carry it out while the policy waits; None where it has no changes.
        Raises like ``reconcile``."""
        with self._locks[host]:
            taken = self.snapshot_of(host, 0.0)
            plan = make(taken)
            if not plan.changes:
                return None
            self._store_plan(taken, plan, caller)
            return self._carry_out(plan, caller, kind)

    def drift(self, host: str) -> DriftReport:
        """See UseCases."""
        observation = self._observe(host, self._measure(host, measured=False))
        return self._report(host, observation)

    def reconcile(self, host: str, cause: str, *, measured: bool = False) -> DriftReport:
        """Look at the host and do what its policy's mode says; ``cause`` tells the audit trail why now.

        ``measured``: processes that became busy are found, too, which takes the configured sample. Where nothing stands
        yet it is taken in any case. Raises HostBusy while a person's run holds the host, StalePlan or NovaConflict
        where the host never stands still, and what an agent and a store raise.
        """
        measurement = self._measure(host, measured=measured)
        with self._locks[host]:
            for _ in range(ATTEMPTS - 1):
                try:
                    return self._settle(host, measurement, cause)
                except (StalePlan, NovaConflict) as stale:
                    LOG.info("host %s moved on: %s", host, stale)
            return self._settle(host, measurement, cause)

    def _settle(self, host: str, measurement: Snapshot | None, cause: str) -> DriftReport:
        observation = self._observe(host, measurement)
        if observation.policy is None or observation.plan is None:
            return self._report(host, observation)
        caller = Caller(ACTOR, cause, f"req-{self._new_id()}")
        backed_off = {key(drift.target) for drift in observation.drifts if drift.backoff_until}
        wanted = reasoned(planner.leave_out(observation.plan, backed_off, observation.placement), observation.drifts)
        enforced = observation.policy.mode == "enforce"
        if not observation.drifts or (observation.placement is None and (not enforced or wanted.blocked)):
            self._accept(observation, wanted if wanted.id == observation.plan.id else observation.plan, caller)
        if not enforced:
            self._record_drift(host, observation, caller)
        if observation.policy.mode == "propose":
            self._propose(host, observation, wanted, caller)
        if enforced and wanted.changes and not wanted.blocked:
            return self._enforce(host, observation, wanted, caller)
        return self._report(host, observation)

    def _enforce(self, host: str, observation: _Observation, wanted: Plan, caller: Caller) -> DriftReport:
        ending = tuple(drift for drift in observation.drifts if not drift.backoff_until)
        self._store_plan(observation.snapshot, wanted, caller)
        if self._find(host) != observation.policy:
            raise StalePlan(wanted.id, ("the host's policy is another now",))
        run = self._carry_out(wanted, caller, "apply")
        if run.state != "applied":
            return self._report(host, replace(observation, error=f"run {run.id} is {run.state}: {run.error}"))
        self._remember(observation, record(wanted, observation.snapshot, observation.placement))
        self._backoffs[host] = backoff.after_reconcile(ending, self._backoffs.get(host, {}), self._now())
        self._record_backoffs(host, ending, caller)
        return self._report(
            host, replace(observation, drifts=tuple(drift for drift in observation.drifts if drift.backoff_until))
        )

    def _propose(self, host: str, observation: _Observation, wanted: Plan, caller: Caller) -> None:
        """Store a plan for a person, unless the same changes are proposed already."""
        last = self._proposed.pop(host, None)
        if not wanted.changes:
            return
        if last is None or _moves(last) != _moves(wanted) or last.basis.fingerprint != wanted.basis.fingerprint:
            self._store_plan(observation.snapshot, wanted, caller)
            last = wanted
        self._proposed[host] = last

    def _observe(self, host: str, measurement: Snapshot | None) -> _Observation:
        agent, policy = self._agents[host], self._find(host)
        placement = self._placement(host, policy)
        taken = self.snapshot_of(host, 0.0)
        if measurement is not None:
            taken = with_loads(taken, measurement)
        request = policy.request if policy else placement.request if placement else None
        if request is None:
            return _Observation(policy, placement, taken, None, (), "")
        taken = pruned(taken, request, placement)
        try:
            plan = planner.plan_from_placement(taken, codec.content_hash(taken), request, placement)
        except (Invalid, NoFit, NotFound, NovaConflict) as error:
            return _Observation(policy, placement, taken, None, (), str(error))
        found = drifts(plan, placement, taken)
        if any(drift.cause == "unknown" for drift in found):
            found = agent.explain(found)
        found = backoff.with_backoff(found, self._backoffs.get(host, {}), self._now())
        return _Observation(policy, placement, taken, plan, found, plan.blocked)

    def _measure(self, host: str, *, measured: bool) -> Snapshot | None:
        """The host with its loads, taken before the host is held: a sample lasts for seconds."""
        policy = self._find(host)
        if measured or (policy is not None and self._placement(host, policy) is None):
            return self._agents[host].snapshot(self._sample_seconds)
        return None

    def _placement(self, host: str, policy: Policy | None) -> Placement | None:
        """What stands: as it was stored, or by a run since. Under a policy, only what is of its request counts."""
        stored = self._store.policies.placement(host)
        run = self._store.runs.last_applied(host)
        if policy is None and run is None:
            return None
        placement, since = stored or (None, None)
        # Without a policy nothing stands but what the last run placed: the one after it may have been taken back.
        undone = policy is None and placement is not None and run is not None and placement.plan != run.plan
        if run is not None and (since is None or run.started_at > since or undone):
            plan = self._store.plans.get(run.plan)
            if policy is None or replace(plan.request, rebalance=False) == policy.request:
                snapshot = self._store.snapshots.get(plan.basis.snapshot)
                placement = record(plan, snapshot, placement)
                self._store.policies.record_placement(placement, self._now())
        if placement is None or (policy is not None and placement.request != policy.request):
            return None
        return placement

    def _accept(self, observation: _Observation, plan: Plan, caller: Caller) -> None:
        """Store what stands, or is to stand, although no run made it so; and the plan that tells it, unless the one
        that is known does."""
        placement = record(plan, observation.snapshot, observation.placement, applied=not observation.drifts)
        if observation.placement is not None and placement.places == observation.placement.places:
            placement = replace(placement, plan=observation.placement.plan)
        else:
            self._store_plan(observation.snapshot, plan, caller)
        self._remember(observation, placement)

    def _remember(self, observation: _Observation, placement: Placement) -> None:
        """Store what stands now, where that is not known yet."""
        if (
            observation.placement is None
            or observation.placement.placed != placement.placed
            or observation.placement.roles != placement.roles
        ):
            self._store.policies.record_placement(placement, self._now())

    def _store_plan(self, basis: Snapshot, plan: Plan, caller: Caller) -> None:
        self._store.snapshots.add(basis)
        if self._store.plans.add(plan, self._now()):
            self._record(caller, "plan.create", plan.host, plan.id, f"{len(plan.changes)} changes")

    def _record_drift(self, host: str, observation: _Observation, caller: Caller) -> None:
        """Write down what drifted since the last look, but for what comes and goes all the time."""
        before = self._noticed.get(host, frozenset())
        self._noticed[host] = frozenset((key(drift.target), drift.cause) for drift in observation.drifts)
        found = tuple(
            drift
            for drift in observation.drifts
            if (key(drift.target), drift.cause) not in before and not drift.backoff_until
        )
        if found:
            self._backoffs[host] = backoff.after_reconcile(found, self._backoffs.get(host, {}), self._now())
            named = "; ".join(f"{drift.target}: {drift.detail or drift.cause}" for drift in found[:_NAMED])
            more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            self._record(caller, "drift.found", host, f"{len(found)} targets", named + more)

    def _record_backoffs(self, host: str, ended: tuple[Drift, ...], caller: Caller) -> None:
        for drift in ended:
            contested = self._backoffs[host].get(key(drift.target)) if drift.cause in OTHERS else None
            if contested is not None and contested.times >= backoff.FREE_RETRIES:
                audit_event = (
                    f"put back {contested.times} times, left alone until {contested.backoff_until.isoformat()}"
                )
                self._record(
                    caller, "drift.backoff", host, str(drift.target), f"{drift.detail or drift.cause}: {audit_event}"
                )

    def _find(self, host: str) -> Policy | None:
        try:
            return self._store.policies.get(host)
        except NotFound:
            return None

    def _report(self, host: str, observation: _Observation) -> DriftReport:
        proposed = self._proposed.get(host)
        fits = proposed is not None and observation.plan is not None and _moves(proposed) == _moves(observation.plan)
        return DriftReport(
            host=host,
            at=observation.snapshot.taken_at,
            mode=observation.policy.mode if observation.policy else None,
            placement=observation.placement.plan if observation.placement else "",
            drifts=observation.drifts,
            unplaced=observation.plan.unplaced if observation.plan else (),
            proposed=proposed.id if proposed is not None and fits else "",
            error=observation.error,
        )

    def _record(self, caller: Caller, action: str, host: str, subject: str, result: str) -> None:
        self._store.audit.append(audit_event(caller, self._now(), action, host, subject, result))


def _moves(plan: Plan) -> list[Change]:
    """What a plan does, whatever its reasons."""
    return [replace(change, reason="") for change in plan.changes]


def _summary(policy: Policy) -> str:
    return f"{policy.mode}: {codec.dump(policy.request).decode()}"
