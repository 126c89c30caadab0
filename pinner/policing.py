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
from pinner.model.drift import Drift, DriftReport, News
from pinner.model.errors import Invalid, NoFit, NotFound, NovaConflict, PinnerError, PolicyConflict, StalePlan
from pinner.model.journal import Run, RunKind
from pinner.model.plan import Change, Plan
from pinner.model.policy import Policy, Standing
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import flapping, incremental
from pinner.planning.drift import OTHERS, drifts, reasoned
from pinner.planning.residents import key, relevant, watched, with_loads
from pinner.planning.standing import stand
from pinner.planning.strategy import installed
from pinner.planning.told import with_told
from pinner.store.audit import told
from pinner.store.repositories import Store
from pinner.usecases import Caller

LOG = logging.getLogger(__name__)

ACTOR = "policy"
"""Who it is in the audit trail that no person asked."""

ATTEMPTS = 3
"""How often a plan is made anew where the host moved on before it was applied."""

_NAMED = 5
"""How many drifts an audit record names."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A host as it is, against what its policy wants."""

    policy: Policy | None
    standing: Standing | None
    snapshot: Snapshot
    plan: Plan | None
    drifts: tuple[Drift, ...]
    error: str


class Policing:
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
        self._fights: dict[str, flapping.Fights] = {}
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
        was, now = _words(before) if before else "", self._now()
        event = told(caller, now, "policy.set", host, host, "done", before=was, after=_words(policy))
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
        if request is None or replace(request, repack=False) != policy.request:
            raise PolicyConflict(host, what)

    def news(self, host: str, after: int, timeout: float) -> tuple[News, ...]:
        """What happened on the host that may matter to its policy. See Agent.news."""
        policy = self._find(host)
        standing = self._standing(host, policy)
        names = {*(watched(standing) if standing else ()), *(policy.request.processes if policy else ())}
        return self._agents[host].news(after, timeout, tuple(sorted(names)))

    def seen(self, host: str, sample_seconds: float) -> Snapshot:
        """The host as its agent sees it, and what events told of its guests."""
        taken = self._agents[host].snapshot(sample_seconds)
        return with_told(taken, self._store.told.of(host), self._now())

    def between(self, host: str, make: Callable[[Snapshot], Plan], kind: RunKind, caller: Caller) -> Run | None:
        """Make a plan for the host as it is now and carry it out while the policy waits; None where it has no changes.
        Raises like ``reconcile``."""
        with self._locks[host]:
            taken = self.seen(host, 0.0)
            plan = make(taken)
            if not plan.changes:
                return None
            self._keep(taken, plan, caller)
            return self._carry_out(plan, caller, kind)

    def drift(self, host: str) -> DriftReport:
        """See UseCases."""
        look = self._look(host, self._measure(host, measured=False))
        return self._report(host, look)

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
        look = self._look(host, measurement)
        if look.policy is None or look.plan is None:
            return self._report(host, look)
        caller = Caller(ACTOR, cause, f"req-{self._new_id()}")
        held = {key(drift.target) for drift in look.drifts if drift.held_until}
        wanted = reasoned(incremental.without(look.plan, held, look.standing), look.drifts)
        enforced = look.policy.mode == "enforce"
        if not look.drifts or (look.standing is None and (not enforced or wanted.blocked)):
            self._accept(look, wanted if wanted.id == look.plan.id else look.plan, caller)
        if not enforced:
            self._notice(host, look, caller)
        if look.policy.mode == "propose":
            self._propose(host, look, wanted, caller)
        if enforced and wanted.changes and not wanted.blocked:
            return self._enforce(host, look, wanted, caller)
        return self._report(host, look)

    def _enforce(self, host: str, look: _Look, wanted: Plan, caller: Caller) -> DriftReport:
        ending = tuple(drift for drift in look.drifts if not drift.held_until)
        self._keep(look.snapshot, wanted, caller)
        if self._find(host) != look.policy:
            raise StalePlan(wanted.id, ("the host's policy is another now",))
        run = self._carry_out(wanted, caller, "apply")
        if run.state != "applied":
            return self._report(host, replace(look, error=f"run {run.id} is {run.state}: {run.error}"))
        self._remember(look, stand(wanted, look.snapshot, look.standing))
        self._fights[host] = flapping.put_back(ending, self._fights.get(host, {}), self._now())
        self._tell_flapping(host, ending, caller)
        return self._report(host, replace(look, drifts=tuple(drift for drift in look.drifts if drift.held_until)))

    def _propose(self, host: str, look: _Look, wanted: Plan, caller: Caller) -> None:
        """Store a plan for a person, unless the same changes are proposed already."""
        last = self._proposed.pop(host, None)
        if not wanted.changes:
            return
        if last is None or _moves(last) != _moves(wanted) or last.basis.fingerprint != wanted.basis.fingerprint:
            self._keep(look.snapshot, wanted, caller)
            last = wanted
        self._proposed[host] = last

    def _look(self, host: str, measurement: Snapshot | None) -> _Look:
        agent, policy = self._agents[host], self._find(host)
        standing = self._standing(host, policy)
        taken = self.seen(host, 0.0)
        if measurement is not None:
            taken = with_loads(taken, measurement)
        request = policy.request if policy else standing.request if standing else None
        if request is None:
            return _Look(policy, standing, taken, None, (), "")
        taken = relevant(taken, request, standing)
        try:
            plan = incremental.plan(taken, codec.content_hash(taken), request, standing)
        except (Invalid, NoFit, NotFound, NovaConflict) as error:
            return _Look(policy, standing, taken, None, (), str(error))
        found = drifts(plan, standing, taken)
        if any(drift.cause == "unknown" for drift in found):
            found = agent.explain(found)
        found = flapping.marked(found, self._fights.get(host, {}), self._now())
        return _Look(policy, standing, taken, plan, found, plan.blocked)

    def _measure(self, host: str, *, measured: bool) -> Snapshot | None:
        """The host with its loads, taken before the host is held: a sample lasts for seconds."""
        policy = self._find(host)
        if measured or (policy is not None and self._standing(host, policy) is None):
            return self._agents[host].snapshot(self._sample_seconds)
        return None

    def _standing(self, host: str, policy: Policy | None) -> Standing | None:
        """What stands: as it was stored, or by a run since. Under a policy, only what is of its request counts."""
        stored = self._store.policies.standing(host)
        run = self._store.runs.last_applied(host)
        if policy is None and run is None:
            return None
        standing, since = stored or (None, None)
        # Without a policy nothing stands but what the last run placed: the one after it may have been taken back.
        undone = policy is None and standing is not None and run is not None and standing.plan != run.plan
        if run is not None and (since is None or run.started_at > since or undone):
            plan = self._store.plans.get(run.plan)
            if policy is None or replace(plan.request, repack=False) == policy.request:
                snapshot = self._store.snapshots.get(plan.basis.snapshot)
                standing = stand(plan, snapshot, standing)
                self._store.policies.stand(standing, self._now())
        if standing is None or (policy is not None and standing.request != policy.request):
            return None
        return standing

    def _accept(self, look: _Look, plan: Plan, caller: Caller) -> None:
        """Store what stands, or is to stand, although no run made it so; and the plan that tells it, unless the one
        that is known does."""
        standing = stand(plan, look.snapshot, look.standing, applied=not look.drifts)
        if look.standing is not None and standing.places == look.standing.places:
            standing = replace(standing, plan=look.standing.plan)
        else:
            self._keep(look.snapshot, plan, caller)
        self._remember(look, standing)

    def _remember(self, look: _Look, standing: Standing) -> None:
        """Store what stands now, where that is not known yet."""
        if look.standing is None or look.standing.placed != standing.placed or look.standing.roles != standing.roles:
            self._store.policies.stand(standing, self._now())

    def _keep(self, basis: Snapshot, plan: Plan, caller: Caller) -> None:
        self._store.snapshots.add(basis)
        if self._store.plans.add(plan, self._now()):
            self._record(caller, "plan.create", plan.host, plan.id, f"{len(plan.changes)} changes")

    def _notice(self, host: str, look: _Look, caller: Caller) -> None:
        """Write down what drifted since the last look, but for what comes and goes all the time."""
        before = self._noticed.get(host, frozenset())
        self._noticed[host] = frozenset((key(drift.target), drift.cause) for drift in look.drifts)
        found = tuple(
            drift for drift in look.drifts if (key(drift.target), drift.cause) not in before and not drift.held_until
        )
        if found:
            self._fights[host] = flapping.put_back(found, self._fights.get(host, {}), self._now())
            named = "; ".join(f"{drift.target}: {drift.detail or drift.cause}" for drift in found[:_NAMED])
            more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            self._record(caller, "drift.found", host, f"{len(found)} targets", named + more)

    def _tell_flapping(self, host: str, ended: tuple[Drift, ...], caller: Caller) -> None:
        for drift in ended:
            fight = self._fights[host].get(key(drift.target)) if drift.cause in OTHERS else None
            if fight is not None and fight.times >= flapping.PATIENCE:
                told = f"put back {fight.times} times, left alone until {fight.held_until.isoformat()}"
                self._record(caller, "drift.flaps", host, str(drift.target), f"{drift.detail or drift.cause}: {told}")

    def _find(self, host: str) -> Policy | None:
        try:
            return self._store.policies.get(host)
        except NotFound:
            return None

    def _report(self, host: str, look: _Look) -> DriftReport:
        proposed = self._proposed.get(host)
        fits = proposed is not None and look.plan is not None and _moves(proposed) == _moves(look.plan)
        return DriftReport(
            host=host,
            at=look.snapshot.taken_at,
            mode=look.policy.mode if look.policy else None,
            placement=look.standing.plan if look.standing else "",
            drifts=look.drifts,
            unplaced=look.plan.unplaced if look.plan else (),
            proposed=proposed.id if proposed is not None and fits else "",
            error=look.error,
        )

    def _record(self, caller: Caller, action: str, host: str, subject: str, result: str) -> None:
        self._store.audit.append(told(caller, self._now(), action, host, subject, result))


def _moves(plan: Plan) -> list[Change]:
    """What a plan does, whatever its reasons."""
    return [replace(change, reason="") for change in plan.changes]


def _words(policy: Policy) -> str:
    return f"{policy.mode}: {codec.dump(policy.request).decode()}"
