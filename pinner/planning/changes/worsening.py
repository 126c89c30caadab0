"""Whether a plan makes the objective worse, and whether a policy applies it all the same (docs/objective.md).

The request asks for the rise of some terms, such as ``overcommit``: on the documented host the guests' network gets
several times faster where housekeeping and emulators have CPUs of their own.
"""

from pinner.model.plan.objective import COST, LEAST, Objective, Term, rise, value_of
from pinner.model.plan.plan import Plan, Roles


def warning(objective: Objective, roles: Roles) -> str:
    worse = _worse(objective, roles)
    if not worse:
        return ""
    most = max(sorted(worse, key=lambda term: term.name), key=lambda term: term.rise)
    before, after = value_of(worse)
    numbers = f"tier {most.tier} {before:.2f} -> {after:.2f}"
    term = f"{most.name} {most.before:.2f} -> {most.after:.2f} {most.unit}"
    refused = _harm(worse, roles) >= LEAST
    then = "a policy does not apply it" if refused else "the request asks for that, so a policy applies it"
    return f"the plan makes the objective worse, {numbers}, most of it by {term}; {then}"


def objection(plan: Plan) -> str:
    if not plan.changes or _harm(_worse(plan.objective, plan.roles), plan.roles) < LEAST:
        return ""
    return f"the plan {plan.id} is not applied: {warning(plan.objective, plan.roles)}"


def _worse(objective: Objective, roles: Roles) -> tuple[Term, ...]:
    """A tier that gets worse only because the request asks for it is the answer unless a lower tier does harm."""
    excused: tuple[Term, ...] = ()
    for tier in objective.tiers():
        asked = tuple(term for term in tier if term.asked and term.tier < COST)
        if rise(asked) <= -LEAST:
            break
        if rise(asked) >= LEAST:
            if _harm(asked, roles) >= LEAST:
                return asked
            excused = excused or asked
    return excused


def _harm(terms: tuple[Term, ...], roles: Roles) -> float:
    excused = {"unplaced_guests", "overcommit"}
    sharing = (
        ("vcpu_vs_host", roles.vcpu & roles.housekeeping),
        ("vcpu_vs_emulator", roles.vcpu & roles.emulator),
        ("emulator_vs_host", roles.emulator & roles.housekeeping),
    )
    excused |= {term for term, shared in sharing if shared}
    return min(rise(terms), rise(tuple(term for term in terms if term.name not in excused)))
