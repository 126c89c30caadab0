"""New guests that an enforcing policy leaves as they are, because their places make the objective worse."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pinner.model.change import AffinityChange, Group, TargetKey, group_of
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import KINDS
from pinner.model.plan.objective import Objective, compared, harm
from pinner.model.plan.plan import Placement, Plan
from pinner.model.policy import Drift
from pinner.model.snapshot import Snapshot
from pinner.model.text import listed
from pinner.planning.objective import excused_rises, harmed, kept_cpus, worsening
from pinner.planning.objective_terms import SPREAD, ObjectiveMeasure, weights
from pinner.planning.policy.backoff_counts import reasons, remaining
from pinner.planning.request.context import Context

_NAMED = 5


@dataclass(frozen=True, slots=True)
class LeftAlone:
    reasons: Mapping[Group, str] = field(default_factory=dict)
    """The guest's name, and what its place makes worse, by itself or beside those of the others."""
    worse: str = ""
    """The tier that the plan makes worse, without what is left out of it and without the new guests; empty: none."""

    @classmethod
    def of(cls, plan: Plan, drifts: Collection[Drift], snapshot: Snapshot, placement: Placement | None) -> "LeftAlone":
        """Each place is judged by itself, on the host as it is. While those that pass make the objective worse
        together, the one without which they do least harm is taken out; in the end, each of these is tried again beside
        the others. Nearness to memory and devices does not count: a guest may get a far place rather than none.
        Without a ``placement``, no guest is new."""
        waiting = reasons(drifts).keys()
        # A user has named the places of a placement by hand.
        judged = placement and (plan.worse or not plan.request.placement)
        new = {
            group_of(drift.target): drift.target.name
            for drift in drifts
            if judged and drift.cause in ("arrived", "restarted") and KINDS[drift.target.kind].group == "guest"
        }
        if not new and not waiting:
            return cls(worse=plan.worse)
        parts = _Parts.of(plan, snapshot, placement, new, waiting)
        whys = {guest: worsening(parts.effect({guest})) for guest in sorted(new)}
        passed = frozenset(guest for guest, why in whys.items() if not why)
        placed = passed
        while worsening(parts.effect(placed)):
            placed -= {min(sorted(placed), key=lambda guest: harm(harmed(parts.effect(placed - {guest}))))}
        for guest in sorted(passed - placed):
            whys[guest] = worsening(parts.effect(placed | {guest}, placed))
            placed |= frozenset() if whys[guest] else {guest}
        left = {
            guest: f"guest {new[guest]} is left as it is: its place makes the objective worse: {why}"
            for guest, why in whys.items()
            if why
        }
        return cls(left, worsening(parts.of_others()) if left or waiting else plan.worse)

    @property
    def why(self) -> str:
        return listed(list(self.reasons.values()), _NAMED, "; ")


@dataclass(frozen=True, slots=True)
class _Parts:
    """A plan's changes of the new guests, and all its other changes, which come first; without those of the targets
    that wait."""

    plan: Plan
    new: Collection[Group]
    waiting: Collection[TargetKey]
    measure: ObjectiveMeasure
    weights: Mapping[str, float]
    asked: frozenset[str]
    kept: Callable[[CpuSet], CpuSet]

    @classmethod
    def of(
        cls,
        plan: Plan,
        snapshot: Snapshot,
        placement: Placement | None,
        new: Collection[Group],
        waiting: Collection[TargetKey],
    ) -> "_Parts":
        measure = ObjectiveMeasure.of(snapshot, plan.request.busy_threshold)
        asked = frozenset(term.name for term in plan.objective.terms if term.asked)
        kept = kept_cpus(Context.of(snapshot, plan.request, placement, lenient=True), plan.roles)
        return cls(plan, new, waiting, measure, weights(snapshot, plan.request), asked, kept)

    def effect(self, placed: Collection[Group], before: Collection[Group] = ()) -> Objective:
        """What the places of these new guests do, where those of ``before`` have theirs already."""
        return self._compared(self._masks(before), self._masks(placed), self.asked - SPREAD)

    def of_others(self) -> Objective:
        return self._compared({}, self._masks(()), self.asked)

    def _compared(
        self, before: Mapping[int, CpuSet], planned: Mapping[int, CpuSet], asked: frozenset[str]
    ) -> Objective:
        now, then = (self.measure.values(masks) for masks in (before, planned))
        excused = excused_rises(self.measure, now, then, planned, kept=self.kept, masks_before=before)
        return compared(now, then, self.weights, asked, excused)

    def _masks(self, placed: Collection[Group]) -> Mapping[int, CpuSet]:
        left = {*self.new} - {*placed}
        waiting = {change.target.key for change in self.plan.changes if group_of(change.target) in left}
        changes = remaining(self.plan.changes, waiting | {*self.waiting})
        affinities = (change for change in changes if isinstance(change, AffinityChange))
        return {mask.tid: change.after for change in affinities for mask in change.before}
