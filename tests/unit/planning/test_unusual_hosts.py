"""Hosts of unusual shape: asymmetric nodes, no L3 caches, nodes without memory or CPUs, large and sparse ids."""

from dataclasses import replace

import pytest
from support.hosts import GIB, applied, guest, plain, snapshot, topology
from support.made_up.anyhost import STRATEGIES

from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import Topology
from pinner.model.plan.request import Request
from pinner.planning.planner import plan


def cores(first: int, count: int, step: int = 1) -> list[list[int]]:
    return [[cpu] for cpu in range(first, first + count * step, step)]


HOSTS: dict[str, Topology] = {
    "asymmetric": topology({0: cores(0, 24), 1: cores(24, 4), 7: cores(40, 1)}),
    "asymmetric-memory": topology({0: cores(0, 16), 1: cores(16, 16)}, memory_kib={0: 4 * GIB, 1: 256 * GIB}),
    "without-memory": topology({0: cores(0, 16), 1: cores(16, 16)}, memory_kib={1: 64 * GIB}),
    "without-cpus": topology({0: cores(0, 16), 1: cores(16, 16), 2: [], 9: []}),
    "no-node-has-memory": plain(32, 2, memory_kib=0),
    "ids-above-4096": topology({0: cores(4100, 16, 3), 5: [[cpu, cpu + 1] for cpu in range(8100, 8132, 2)]}),
    "highest-ids": topology({255: cores(8176, 16)}),
    "no-nodes-known": replace(plain(16), cpus=tuple(replace(cpu, node=None) for cpu in plain(16).cpus), nodes=()),
    "two-cpus": plain(2),
}


def isolated(top: Topology) -> Topology:
    """The host on which the kernel isolates the CPUs that would be vCPUs'."""
    pool = plan(snapshot(top), "s", Request("isolated")).roles.vcpu
    return replace(top, cpus=tuple(replace(cpu, isolated=cpu.id in pool) for cpu in top.cpus))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", HOSTS)
def test_every_host_has_a_valid_plan_that_is_stable(name: str, strategy: str) -> None:
    top = HOSTS[name]
    if strategy == "isolated":
        top = isolated(top)
    balanced = top.online - top.isolated
    guests = [guest(number, 1 + number % 2, balanced, memory={}, memory_kib=GIB) for number in range(3)]
    host = snapshot(top, guests)
    made = plan(host, "s", Request(strategy))
    for want in made.wanted:
        assert want.cpus
        assert want.cpus <= top.online
    placed = {want.target.owner for want in made.wanted if want.target.kind == "vcpu"}
    assert placed | {left.target.owner for left in made.unplaced} == {each.uuid for each in host.guests}
    if name != "two-cpus":
        assert made.unplaced == ()
    assert plan(applied(host, made), "s", Request(strategy)).changes == ()


def test_no_l3_cache_is_known_on_these_hosts() -> None:
    assert {(top.l3_domains, *{cpu.l3 for cpu in top.cpus}) for top in HOSTS.values()} == {((), None)}
    assert max(CpuSet.of(cpu.id for cpu in HOSTS["highest-ids"].cpus)) == 8191
