"""Automatic sets beside a list of CPUs leave a node to the guests that need all the others of it."""

from contextlib import suppress
from dataclasses import replace
from unittest.mock import Mock

import pytest
from data.field.documented import EVEN, documented_host
from support.hosts import GIB, applied, cpus, guest, interleaved, snapshot
from support.made_up.small_hosts import small_host

from pinner.model.errors import PinnerError
from pinner.model.guest.guest_numa import GuestNuma, MemoryBinding
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement, sparing
from pinner.planning.request.context import Context
from pinner.planning.strategies import per_flavor

HOUSEKEEPING = "0,2,4,6"
"""Of the documented case: node 0 keeps 16 CPUs, as many as the large guest has vCPUs."""


def large_on_node_0() -> Snapshot:
    """The guest of 16 vCPUs has 12 GiB there, the one of 2 vCPUs 8 GiB: remote memory is 8,192 MiB at best."""
    host = documented_host()
    small, large = host.guests
    return replace(host, guests=(small, replace(large, memory_kib=12 * GIB, memory_per_node={0: 12 * GIB})))


def vcpus(made: Plan) -> dict[str, str]:
    return {want.target.name: str(want.cpus) for want in made.wanted if want.target.kind == "vcpu"}


def test_the_emulator_set_leaves_the_large_guest_its_node() -> None:
    """A core of node 0 for emulators would send the large guest to node 1: remote memory 12,288."""
    made = plan(large_on_node_0(), "s", Request("numa-local", housekeeping=HOUSEKEEPING))
    assert vcpus(made)["g2"] == EVEN
    assert made.objective.term("remote_memory").after == 8 * 1024
    assert made.roles.emulator <= cpus("1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39")


def test_a_second_plan_changes_nothing() -> None:
    host, request = large_on_node_0(), Request("numa-local", housekeeping=HOUSEKEEPING)
    assert plan(applied(host, plan(host, "s", request)), "s", request).changes == ()


@pytest.mark.parametrize("strategy", ["shared-pool", "isolated"])
def test_strategies_without_nodes_for_guests_have_emulators_on_each_node(strategy: str) -> None:
    made = plan(large_on_node_0(), "s", Request(strategy, housekeeping=HOUSEKEEPING))
    assert str(made.roles.emulator) == "1,8,21,28"


def test_a_set_of_each_node_stays_where_no_guest_gains() -> None:
    made = plan(documented_host(), "s", Request("numa-local", housekeeping="1,3"))
    assert all(made.roles.emulator & node for node in documented_host().topology.online_by_node.values())


def _half_of_a_node(host: Snapshot) -> str:
    node = next(iter(host.topology.online_by_node.values())) - host.topology.isolated
    return str(cpus(",".join(map(str, sorted(node)[: max(len(node) // 2, 1)]))))


def test_beside_any_list_a_second_plan_changes_nothing() -> None:
    tried = 0
    for seed in range(60):
        host = small_host(seed)
        request = Request("numa-local", housekeeping=_half_of_a_node(host))
        with suppress(PinnerError):  # the half may be dedicated by Nova, or all that is free
            if (made := plan(host, "s", request)).worse or made.blocked:
                continue
            assert (seed, plan(applied(host, made), "s", request).changes) == (seed, ())
            tried += 1
    assert tried > 30


def test_a_policy_places_a_guest_that_is_bound_to_the_node_without_emulators() -> None:
    """The record has emulators on node 1 alone, because the first guest needs all the other CPUs of node 0."""
    top, request = interleaved(16, 2), Request("numa-local", housekeeping="0,16")
    host = snapshot(top, [guest(1, 14, top.online, memory={0: 2 * GIB})])
    made = plan_from_placement(host, "s", request, None)
    assert made.roles.emulator <= top.online_by_node[1]
    after = applied(host, made)
    bound = GuestNuma(memory=MemoryBinding("strict", (0,)))
    new = replace(after, guests=(*after.guests, guest(2, 2, top.online, memory={0: GIB}, numa=bound)))
    then = plan_from_placement(new, "s", request, record(made, after, None))
    assert then.unplaced == ()
    assert plan_from_placement(applied(new, then), "s", request, record(then, applied(new, then), None)).changes == ()


@pytest.mark.parametrize(
    ("nodes", "strategy", "tried"), [(2, "numa-local", 2), (8, "numa-local", 0), (2, "isolated", 0)]
)
def test_only_nodes_are_tried_that_may_be_left_out(
    nodes: int, strategy: str, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs a placement of all guests, and they are compared with one more."""
    top = interleaved(32, nodes)
    host = snapshot(top, [guest(1, 4, top.online)])
    context = Context.of(host, request := Request(strategy, housekeeping="0,32"))
    assert len(list(sparing(context))) == tried
    placed = Mock(wraps=per_flavor.place)
    monkeypatch.setattr(per_flavor, "place", placed)
    plan(host, "s", request)
    assert placed.call_count == (tried and tried + 1) + 1
