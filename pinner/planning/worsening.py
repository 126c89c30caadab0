"""Whether a plan makes the score of its host worse, and whether a policy applies it all the same.

Some parts of the score rise because the request asks for it. They keep no policy from an apply:

- ``overcommit``: CPUs that housekeeping and emulators get for themselves are no longer the vCPUs'. On the documented
  host this part rises, and the guests' network gets several times faster.
- ``remote_nodes``: ``shared-pool`` lets vCPUs float over all nodes; elsewhere a node may be full.
- the conflict of two roles that share CPUs, because a node is too small for three sets. A note of the plan says so.

The other parts count load on too few CPUs. A plan that raises them harms the host, whatever the request says.
"""

from pinner.model.plan import Plan, Roles, Score

_LEAST = 0.01
"""CPUs; a smaller difference of scores is none."""


def warning(before: Score, after: Score, roles: Roles) -> str:
    """The warning of a plan that makes the score worse, with the part that rises most; empty for another plan."""
    if after.total - before.total < _LEAST:
        return ""
    rises = _rises(before, after)
    most = max(sorted(rises), key=lambda part: rises[part])
    numbers = f"{before.total:.2f} -> {after.total:.2f}"
    part = f"{most} {before.parts.get(most, 0.0):.2f} -> {after.parts[most]:.2f}"
    refused = _harm(before, after, roles) >= _LEAST
    then = "a policy does not apply it" if refused else "the request asks for that, so a policy applies it"
    return f"the plan makes the score worse, {numbers}, most of it by {part}; {then}"


def objection(plan: Plan) -> str:
    """Why no policy applies the plan: it makes the score worse, and not because the request asks for it. Else empty."""
    before, after = plan.score_before, plan.score_after
    if not plan.changes or min(after.total - before.total, _harm(before, after, plan.roles)) < _LEAST:
        return ""
    return f"the plan {plan.id} is not applied: {warning(before, after, plan.roles)}"


def _harm(before: Score, after: Score, roles: Roles) -> float:
    """How much the score rises, without what the request asks for."""
    asked = {"overcommit", "remote_nodes"}
    sharing = (
        ("vcpu_vs_host", roles.vcpu & roles.housekeeping),
        ("vcpu_vs_emulator", roles.vcpu & roles.emulator),
        ("emulator_vs_host", roles.emulator & roles.housekeeping),
    )
    asked |= {part for part, shared in sharing if shared}
    return sum(rise for part, rise in _rises(before, after).items() if part not in asked)


def _rises(before: Score, after: Score) -> dict[str, float]:
    """How much each part rises; negative where it falls."""
    return {part: value - before.parts.get(part, 0.0) for part, value in after.parts.items()}
