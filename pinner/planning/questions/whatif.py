"""The plan for a host, and for the same host with other guests, nodes, CPUs or another request."""

from collections.abc import Mapping

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.plan.objective import COST
from pinner.model.plan.plan import Plan, vcpus_by_guest
from pinner.model.plan.request import Request
from pinner.model.questions.whatif import Scenario, ScenarioOutcome, WhatIf
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.objective.of_plan import ObjectiveMeasure
from pinner.planning.questions.scenario import changed
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import Strategy, installed, require_known


def what_if(
    snapshot: Snapshot,
    request: Request,
    scenario: Scenario,
    strategies: Mapping[str, Strategy] | None = None,
) -> WhatIf:
    """Both plans. Raises NotFound for an unknown strategy, guest or node; Invalid for CPUs or a parameter that the host
    as it is cannot have; NoFit where it has no CPU for vCPUs. Where the scenario's host cannot have a plan, the answer
    says why."""
    known = installed() if strategies is None else strategies
    then = scenario.request or request
    for asked in (request, then):
        require_known(asked.strategy, known)
    before = planner.plan(snapshot, "", request, known)
    other = changed(snapshot, scenario)
    first = _outcome(before)
    try:
        # A guest that the request names may be among those that the scenario removes.
        after = planner.build(known, Context.of(other, then, lenient=True), "", "")
    except (Invalid, NoFit, NovaConflict) as error:
        last = ScenarioOutcome(then.strategy, 0, (), {}, {}, impossible=str(error))
        return WhatIf(snapshot.host, snapshot.taken_at, first, last, {})
    last = _outcome(after)
    change = difference(last.planned, first.planned)
    return WhatIf(snapshot.host, snapshot.taken_at, first, last, change, moved_guests(before, after))


def moved_guests(before: Plan, after: Plan) -> tuple[Target, ...]:
    """The guests whose vCPUs both plans place, on different CPUs."""
    one, other = vcpus_by_guest(before.wanted), vcpus_by_guest(after.wanted)
    names = {want.target.owner: want.target.name for want in before.wanted}
    return tuple(
        Target("guest", uuid, None, names[uuid]) for uuid, cpus in one.items() if uuid in other and other[uuid] != cpus
    )


def _outcome(plan: Plan) -> ScenarioOutcome:
    return ScenarioOutcome(
        strategy=plan.request.strategy,
        guests=len(vcpus_by_guest(plan.wanted)),
        unplaced=plan.unplaced,
        now=now(plan),
        planned=planned(plan),
        warnings=plan.warnings,
        blocked=plan.blocked,
    )


UNPLACED = "unplaced_guests"
_DIGITS = 6


def now(plan: Plan) -> dict[str, float]:
    return {term.name: term.before for term in plan.objective.terms if term.tier < COST}


def planned(plan: Plan) -> dict[str, float]:
    return {term.name: term.after for term in plan.objective.terms if term.tier < COST}


def of_masks(snapshot: Snapshot, request: Request, masks: Mapping[int, CpuSet], unplaced: float) -> dict[str, float]:
    """The terms with these affinities by thread id; other threads stay."""
    return {UNPLACED: unplaced, **ObjectiveMeasure.of(snapshot, request.busy_threshold).values(masks)}


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Without the terms that are the same."""
    names = dict.fromkeys((*before, *after))
    found = {name: round(after.get(name, 0.0) - before.get(name, 0.0), _DIGITS) for name in names}
    return {name: more for name, more in found.items() if more}
