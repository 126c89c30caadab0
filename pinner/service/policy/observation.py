"""The present host beside its policy and its recorded placement."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from pinner import codec
from pinner.model.change import TargetKey, group_of
from pinner.model.errors import Invalid, NoFit, NotFound, NovaConflict
from pinner.model.plan.plan import Placement, Plan
from pinner.model.policy import Backoffs, Drift, Policy
from pinner.model.run.journal import UNDO_BEGUN, Run
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.placement import OTHERS, drifts, in_boot, record
from pinner.planning.policy.backoff_counts import with_backoff
from pinner.planning.policy.left_alone import LeftAlone
from pinner.planning.request.processes import pruned, still_named, watched, with_loads
from pinner.service.hosts.hosts import Hosts
from pinner.service.policy.policies import HostPolicies
from pinner.service.policy.stored_backoffs import Failures
from pinner.store.repositories import Store


@dataclass(frozen=True, slots=True)
class Observation:
    policy: Policy | None
    placement: Placement | None
    """None: no plan was applied, or none of the policy's request."""
    snapshot: Snapshot
    plan: Plan | None
    """The plan that would end the drift; None: the host has neither policy nor placement, or no plan is possible."""
    drifts: tuple[Drift, ...]
    error: str
    """Why no plan is possible, or why the plan cannot be applied now: it is blocked, or makes the objective worse."""
    run_seq: int
    """The number of the placement's last run."""
    last_run: int
    """The number of the host's last applied run, or 0."""
    left_alone: LeftAlone = field(default_factory=LeftAlone)


class Observer:
    """Changes nothing on a host; stores only the placement that runs have made."""

    def __init__(self, hosts: Hosts, policies: HostPolicies, store: Store, now: Callable[[], datetime]) -> None:
        self._hosts = hosts
        self._policies = policies
        self._store = store
        self._now = now

    def observe(self, host: str, measurement: Snapshot | None, backoffs: Backoffs) -> Observation:
        """``measurement`` has the CPU use just before; None: not known."""
        policy = self._policies.find(host)
        placement, run_seq, last = self._recorded(host, policy)
        taken = self._hosts.snapshot(host, 0.0)
        if placement is not None:
            placement = in_boot(placement, taken.boot)
        if measurement is not None:
            taken = with_loads(taken, measurement)
        request = policy.request if policy else still_named(placement, taken) if placement else None
        if request is None:
            return Observation(policy, placement, taken, None, (), "", run_seq, last)
        taken = pruned(taken, request, placement)
        try:
            plan = planner.plan_from_placement(taken, codec.content_hash(taken), request, placement)
        except (Invalid, NoFit, NotFound, NovaConflict) as error:
            return Observation(policy, placement, taken, None, (), str(error), run_seq, last)
        drifting = drifts(plan, placement, taken)
        if any(drift.cause == "unknown" for drift in drifting):
            drifting = self._hosts.agent(host).explain_drifts(drifting)
        drifting = with_backoff(drifting, backoffs, self._now())
        enforced = policy is not None and policy.mode == "enforce"
        alone = LeftAlone.of(plan, drifting, taken, placement) if enforced else LeftAlone()
        drifting = tuple(
            replace(drift, detail=alone.reasons.get(group_of(drift.target), drift.detail)) for drift in drifting
        )
        worse = alone.worse and f"plan {plan.id} is not applied: the objective gets worse: {alone.worse}"
        return Observation(policy, placement, taken, plan, drifting, plan.blocked or worse, run_seq, last, alone)

    def placement(self, host: str, policy: Policy | None) -> Placement | None:
        """The placement after the last applied run; under a policy, only one of its own request."""
        return self._recorded(host, policy)[0]

    def names_to_watch(self, host: str) -> tuple[str, ...]:
        policy = self._policies.find(host)
        placement = self.placement(host, policy)
        names = {*(watched(placement) if placement else ()), *(policy.request.processes if policy else ())}
        return tuple(sorted(names))

    def note_release(self, host: str, plan: Plan, run: Run) -> Run:
        """The targets of a release are placed no longer."""
        placement, since, last = self._recorded(host, self._policies.find(host))
        if placement is not None and run.state in ("applied", "applied_partly"):
            released = {change.target.key for change in plan.changes} - self._unplaced(run)
            placed = (
                replace(placed_target, threads=()) if placed_target.target.key in released else placed_target
                for placed_target in placement.placed
            )
            self._store.placements.put(replace(placement, placed=tuple(placed)), self._now(), since, last)
        return run

    def _recorded(self, host: str, policy: Policy | None) -> tuple[Placement | None, int, int]:
        """The placement, its last run's number, and that of the last applied run: which is newer, without a clock."""
        placement, since = self._store.placements.get(host) or (None, 0)
        last = self._store.runs.last_applied(host)
        if last is None:
            return (None if policy is None else self._of(policy, placement)), since, 0
        seq, run = last
        # Without a policy only the last applied run counts: a later run may have been rolled back.
        undone = policy is None and placement is not None and placement.plan != run.plan
        if placement is None or seq > since or undone:
            plan = self._store.plans.get(run.plan)
            if policy is None or replace(plan.request, rebalance=False) == policy.request:
                snapshot = self._store.snapshots.get(plan.basis.snapshot)
                placement = record(plan, snapshot, placement, unplaced=self._unplaced(run))
                self._store.placements.put(placement, self._now(), seq, seq)
        return self._of(policy, placement), max(since, seq), seq

    @staticmethod
    def _of(policy: Policy | None, placement: Placement | None) -> Placement | None:
        if placement is None or (policy is not None and placement.request != policy.request):
            return None
        return placement

    def _unplaced(self, run: Run) -> frozenset[TargetKey]:
        if run.state != "applied_partly":
            return frozenset()
        entries = self._store.runs.entries(run.id)
        return frozenset(entry.change.target.key for entry in entries if entry.state in UNDO_BEGUN)


def not_in_place(seen: Observation, wanted: Plan, failures: Failures) -> set[TargetKey]:
    """Targets that the plan could not, or did not, place; one that another program moves stays recorded as placed."""
    assert seen.plan is not None
    tried = {change.target.key for change in wanted.changes if group_of(change.target) not in failures}
    contested = {drift.target.key for drift in seen.drifts if drift.backoff_until and drift.cause in OTHERS}
    return {change.target.key for change in seen.plan.changes} - tried - contested
