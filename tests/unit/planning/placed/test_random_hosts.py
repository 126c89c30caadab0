"""Properties of plans from the placements of random hosts."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hosts import GIB, applied, guest
from support.made_up.anyhost import STRATEGIES, parameters, snapshots
from support.made_up.placed_hosts import idle, with_guests

from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.plan.objective import compared, weighted
from pinner.model.plan.plan import Placement, Plan, vcpus_by_guest
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.available.exclusions import is_excluded_guest, is_exclusive
from pinner.planning.placement import record
from pinner.planning.planner import plan
from pinner.planning.request.processes import pruned

quietly = settings(
    max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def planned(host: Snapshot, request: Request, placement: Placement | None = None) -> Plan:
    try:
        made = planner.plan_from_placement(host, "s", request, placement)
    except (Invalid, NoFit, NovaConflict):
        return assume(False)
    assume(not made.blocked)
    return made


@pytest.mark.parametrize("strategy", STRATEGIES)
@quietly
@given(host=snapshots(), asked=parameters)
def test_a_second_run_changes_nothing(host: Snapshot, asked: dict, strategy: str) -> None:
    request = Request(strategy, **asked)
    made = planned(host, request)
    placement = record(made, host, None)
    after = applied(host, made)
    again = planner.plan_from_placement(after, "s", request, placement)
    assert (again.changes, again.roles) == ((), made.roles)
    assert planner.plan_from_placement(idle(after, *after.processes), "s", request, placement).changes == ()
    small = pruned(after, request, placement)
    assert planner.plan_from_placement(small, "s", request, placement).wanted == again.wanted


def keep_some(before: Plan, after: Plan, uuid: str) -> bool:
    """Whether each vCPU of the guest keeps CPUs, and gets none beside more or fewer of them."""
    masks, later = (vcpus_by_guest(made.wanted).get(uuid, {}) for made in (before, after))
    return all(cpus & (mask := later.get(vcpu, cpus)) in (cpus, mask) for vcpu, cpus in masks.items())


@pytest.mark.parametrize("strategy", STRATEGIES)
@quietly
@given(host=snapshots(), asked=parameters, comes=st.integers(1, 4), goes=st.integers(0, 3))
def test_guests_that_start_and_stop_leave_the_others_where_they_are(
    host: Snapshot, asked: dict, comes: int, goes: int, strategy: str
) -> None:
    request = Request(strategy, **asked)
    made = planned(host, request)
    placement = record(made, host, None)
    after = applied(host, made)
    # The CPUs of Nova's guests and of excluded ones would be free when these guests stop.
    staying = [
        each
        for number, each in enumerate(after.guests)
        if number != goes or each.dedicated or is_excluded_guest(each, request)
    ]
    newcomer = guest(9, comes, after.topology.online, memory_kib=GIB)
    later = planned(with_guests(after, [*staying, newcomer]), request, placement)
    left_out = {left.target.owner for left in made.unplaced}
    # A guest that was unplaced may get the CPUs of the guest that stopped.
    newcomers = {newcomer.uuid} | {each.uuid for each in after.guests if each.uuid in left_out}
    # So may a guest that could not have its flavor's strategy.
    refused = [warning for warning in made.warnings if "but it gets" in warning]
    newcomers |= {each.uuid for each in after.guests if any(f"guest {each.name}:" in warning for warning in refused)}
    changed = {change.target.owner for change in later.changes}
    displaced = changed - newcomers
    if any(is_exclusive(each, request) for each in (*after.guests, newcomer)):
        # Guests that float get fewer or more CPUs then, but keep some.
        displaced = {uuid for uuid in displaced if not keep_some(made, later, uuid)}
    moved = {move.guest.owner for move in later.moves}
    most = {"shared-pool": 0, "numa-local": 2}.get(strategy, 2 * len(newcomers))
    assert len(displaced) <= most
    if strategy == "numa-local":
        assert displaced <= moved, "only a guest that the plan names as moved leaves its CPUs"
    assert moved <= changed
    again = planner.plan_from_placement(
        applied(with_guests(after, [*staying, newcomer]), later),
        "s",
        request,
        record(later, with_guests(after, [*staying, newcomer]), placement),
    )
    assert (again.changes, again.moves) == ((), ())
    assert {left.target.owner for left in later.unplaced} <= left_out | {newcomer.uuid}
    assert displaced <= {want.target.owner for want in made.wanted if want.target.kind == "vcpu"}
    alone = Counter(
        cpu
        for want in later.wanted
        if want.target.kind == "vcpu" and want.cpus & after.topology.isolated
        for cpu in want.cpus
    )
    assert set(alone.values()) <= {1}


@pytest.mark.parametrize("strategy", STRATEGIES)
@quietly
@given(host=snapshots(), asked=parameters)
def test_a_rebalance_never_makes_the_objective_worse_and_repeated_rebalances_end(
    host: Snapshot, asked: dict, strategy: str
) -> None:
    request = Request(strategy, **asked)
    stay = planned(host, request)
    # Guests and processes that a request names may be missing under a policy only.
    assume(not request.guests or any(each.name == "g0" for each in host.guests))
    assume(not request.processes or any(each.pid == 300 for each in host.processes))
    rebalanced = plan(host, "s", replace(request, rebalance=True))
    assert rebalanced.rebalance is not None
    assert len(rebalanced.unplaced) <= len(stay.unplaced)
    if len(rebalanced.unplaced) == len(stay.unplaced):
        # Both start from the same host, so that these are the values after the two plans.
        after = ({term.name: term.after for term in each.objective.terms} for each in (stay, rebalanced))
        asked = frozenset(term.name for term in rebalanced.objective.terms if term.asked)
        assert compared(*after, weighted(), asked).gain >= 0
    # A later rebalance may place a guest that the one before left unplaced. Nothing else changes.
    for _ in (*host.guests, "the last"):
        host = applied(host, rebalanced)
        before, rebalanced = rebalanced, plan(host, "s", replace(request, rebalance=True))
        if not rebalanced.changes:
            break
        assert len(rebalanced.unplaced) < len(before.unplaced)
    assert rebalanced.changes == ()
