"""The strategy optimal: isolated, with a proof of its allocation."""

import pytest
from support.hosts import GIB, applied, cpus, guest, plain, snapshot, topology, with_caches

from pinner.model.errors import Invalid
from pinner.model.guest.guest_numa import GuestNuma, MemoryBinding
from pinner.model.machine.topology import Topology
from pinner.model.plan.request import MAX_BUDGET, Request
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan
from pinner.planning.strategies.allocator.guest_packing import NOT_ASKED
from pinner.render import text


def with_l3(top: Topology, size: int) -> Topology:
    """The topology with L3 domains of so many CPUs in a row."""
    return with_caches(top, *(f"{first}-{first + size - 1}" for first in range(0, len(top.cpus), size)))


def hard(sizes: tuple[int, ...] = (3, 3, 3, 7)) -> Snapshot:
    """Two L3 domains of eight isolated CPUs beside eight CPUs of the host."""
    top = with_l3(plain(24, isolated="8-23"), 8)
    return snapshot(top, [guest(n, size, cpus("0-7")) for n, size in enumerate(sizes, start=1)])


def test_optimal_places_as_isolated_does_and_proves_it() -> None:
    host = snapshot(plain(32, isolated="8-31"), [guest(1, 12, cpus("0-7")), guest(2, 12, cpus("0-7"))])
    made, isolated = (plan(host, "s", Request(strategy)) for strategy in ("optimal", "isolated"))
    assert (made.wanted, made.roles, made.isolation) == (isolated.wanted, isolated.roles, isolated.isolation)
    assert made.optimality == isolated.optimality
    assert made.optimality is not None
    assert (made.optimality.proven, made.optimality.gap, made.warnings) == (True, 0.0, isolated.warnings)
    words = "unplaced guests 0, farther nodes 0, shared cores 0, extra l3 0; proven: no allocation is better"
    assert f"allocation: {words}" in text.render(made)


def test_optimal_proves_with_the_solver_what_rules_cannot_and_a_second_plan_changes_nothing() -> None:
    pytest.importorskip("highspy")
    host = hard()
    made = plan(host, "s", Request("optimal"))
    assert made.optimality is not None
    assert made.optimality.proven
    assert made.optimality.score == {"unplaced_guests": 0, "farther_nodes": 0, "shared_cores": 0, "extra_l3": 1}
    again = plan(applied(host, made), "s", Request("optimal"))
    assert (again.changes, again.optimality) == ((), made.optimality)


@pytest.mark.parametrize("strategy", ["isolated", "optimal"])
def test_the_plan_names_guests_that_its_proof_leaves_out(strategy: str) -> None:
    """g1 is wider than a node of 14 CPUs, and memory binds g2."""
    bound = guest(2, 4, cpus("0-1"), numa=GuestNuma(memory=MemoryBinding("strict", (3,))), memory={3: 2 * GIB})
    guests = [guest(1, 20, cpus("0-1")), bound, guest(3, 6, cpus("0-1"))]
    made = plan(snapshot(plain(64, 4, isolated="2-15,18-31,34-47,50-63"), guests), "s", Request(strategy))
    assert made.optimality is not None
    assert made.optimality.beyond == ("g1", "g2")
    words = "extra l3 0, without guests that are bound to CPUs or wider than a node (g1, g2); proven: no allocation"
    assert words in text.render(made)


def test_a_plan_of_isolated_asks_the_solver_for_no_bound_where_guests_stay() -> None:
    pytest.importorskip("highspy")
    host = hard()
    made = plan(host, "s", Request("isolated"))
    assert made.optimality is not None
    assert made.optimality.proven
    again = plan(applied(host, made), "s", Request("isolated"))
    assert again.changes == ()
    assert again.optimality is not None
    assert (again.optimality.proven, again.optimality.note) == (False, NOT_ASKED)
    assert again.optimality.score == made.optimality.score
    assert again.optimality.bound["extra_l3"] < made.optimality.bound["extra_l3"]


def test_a_budget_too_small_for_the_solver_gives_a_plan_with_its_bound_and_a_warning() -> None:
    pytest.importorskip("highspy")
    made = plan(hard(), "s", Request("optimal", solver_budget=0))
    assert made.optimality is not None
    assert (made.optimality.proven, made.unplaced) == (False, ())
    assert made.optimality.bound["extra_l3"] < made.optimality.score["extra_l3"]
    assert made.warnings[-1].endswith("the budget of 0 nodes is too small to prove this placement; raise it")


@pytest.mark.parametrize("budget", [-1, MAX_BUDGET + 1])
def test_a_budget_outside_its_limits_is_refused(budget: int) -> None:
    with pytest.raises(Invalid, match=r"solver_budget: .* a number of search nodes from 0 to 1000000"):
        Request("optimal", solver_budget=budget)


def test_a_guest_wider_than_every_node_spans_the_fewest_nodes() -> None:
    top = topology({node: [[c] for c in range(8 * node, 8 * node + 8)] for node in range(4)}, isolated="8-31")
    host = snapshot(top, [guest(1, 12, cpus("0-7")), guest(2, 8, cpus("0-7"))])
    made = plan(host, "s", Request("isolated"))
    assert made.unplaced == ()
    nodes = {min(want.cpus) // 8 for want in made.wanted if want.target.kind == "vcpu" and want.target.name == "g1"}
    assert len(nodes) == 2
    assert plan(applied(host, made), "s", Request("isolated")).changes == ()


def test_a_guest_without_a_place_is_listed_with_the_smallest_change_that_makes_room() -> None:
    top = plain(16, isolated="4-15")
    host = snapshot(top, [guest(n, size, cpus("0-3")) for n, size in enumerate((6, 4, 3), start=1)])
    made = plan(host, "s", Request("isolated"))
    assert [left.why for left in made.unplaced] == [
        "asked for 3 CPUs, 2 are free: no NUMA node has more than 2 of the CPUs that vCPUs may use; "
        "1 more CPU on node 0, such as those of guest g2, would make room"
    ]
