"""The named terms of a plan's score, for questions that compare plans: only this module knows where they come from."""

from collections.abc import Mapping

from pinner.model.cpuset import CpuSet
from pinner.model.plan import Plan, Score
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.score import score

TOTAL = "total"
_DIGITS = 6


def now(plan: Plan) -> dict[str, float]:
    """The terms before the plan is applied, and their total."""
    return _named(plan.score_before)


def planned(plan: Plan) -> dict[str, float]:
    """The terms after the plan is applied, and their total."""
    return _named(plan.score_after)


def of_masks(snapshot: Snapshot, request: Request, masks: Mapping[int, CpuSet]) -> dict[str, float]:
    """The terms of a host whose threads have these affinities by thread id, and its current ones otherwise."""
    return _named(score(snapshot, request.busy_threshold, masks))


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """How much higher each term is, without the terms that are the same."""
    names = dict.fromkeys((*before, *after))
    found = {name: round(after.get(name, 0.0) - before.get(name, 0.0), _DIGITS) for name in names}
    return {name: more for name, more in found.items() if more}


def _named(found: Score) -> dict[str, float]:
    return {**found.parts, TOTAL: found.total}
