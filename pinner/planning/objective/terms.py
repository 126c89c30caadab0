"""The named terms of a plan's objective, for questions that compare plans: only this module knows where they come from.

The cost of the change itself is no part of them: it belongs to the way, and not to the place.
"""

from collections.abc import Mapping

from pinner.model.cpuset import CpuSet
from pinner.model.plan.objective import COST
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.objective.measure import ObjectiveMeasure

UNPLACED = "unplaced_guests"
_DIGITS = 6


def now(plan: Plan) -> dict[str, float]:
    """The terms before the plan is applied."""
    return {term.name: term.before for term in plan.objective.terms if term.tier < COST}


def planned(plan: Plan) -> dict[str, float]:
    """The terms after the plan is applied."""
    return {term.name: term.after for term in plan.objective.terms if term.tier < COST}


def of_masks(snapshot: Snapshot, request: Request, masks: Mapping[int, CpuSet], unplaced: float) -> dict[str, float]:
    """The terms of a host whose threads have these affinities by thread id, and its current ones otherwise; so many
    guests are ``unplaced``."""
    return {UNPLACED: unplaced, **ObjectiveMeasure.of(snapshot, request.busy_threshold).values(masks)}


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """How much higher each term is, without the terms that are the same."""
    names = dict.fromkeys((*before, *after))
    found = {name: round(after.get(name, 0.0) - before.get(name, 0.0), _DIGITS) for name in names}
    return {name: more for name, more in found.items() if more}
