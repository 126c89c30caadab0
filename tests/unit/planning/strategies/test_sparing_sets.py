"""Automatic sets beside a list of CPUs leave a node to the guests that need all the others of it."""

from contextlib import suppress
from dataclasses import replace

import pytest
from data.field.documented import EVEN, documented_host
from support.hosts import GIB, applied, cpus
from support.made_up.small_hosts import small_host

from pinner.model.errors import PinnerError
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan

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
