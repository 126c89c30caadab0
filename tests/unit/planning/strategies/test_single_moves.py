"""No other place of one guest lowers the objective of a fresh plan, unless the plan says why the guest is not there."""

import random
from dataclasses import replace

import pytest
from support.hosts import applied
from support.made_up.single_moves import is_excused, single_moves
from support.made_up.small_hosts import small_host

from pinner.model.machine.topology import NodeId
from pinner.model.plan.objective import TERMS
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan

HOSTS, BLOCK = 2000, 50
BLOCKS = [
    pytest.param(first, marks=[pytest.mark.slow("single moves on 2,000 random hosts")] if first else [])
    for first in range(0, HOSTS, BLOCK)
]


def better_moves(host: Snapshot, request: Request) -> list[tuple[str, tuple[NodeId, ...]]]:
    if (made := plan(host, "s", request)).blocked:
        return []
    better = [move for move in single_moves(host, made) if move.objective.gain > 0 and not is_excused(made, move)]
    return [(move.guest.name, move.nodes) for move in better]


def isolated_host(seed: int) -> Snapshot:
    """Isolated are the CPUs that a plan without isolation gives to vCPUs."""
    host = small_host(seed)
    vcpu = plan(host, "s", Request()).roles.vcpu
    cores = tuple(replace(cpu, isolated=cpu.id in vcpu) for cpu in host.topology.cpus)
    return replace(host, topology=replace(host.topology, cpus=cores))


@pytest.mark.parametrize("first", BLOCKS)
def test_no_single_move_lowers_the_objective(first: int) -> None:
    better = {seed: better_moves(small_host(seed), Request("numa-local")) for seed in range(first, first + BLOCK)}
    assert {seed: moves for seed, moves in better.items() if moves} == {}


@pytest.mark.parametrize("first", BLOCKS)
def test_nor_does_one_with_other_weights(first: int) -> None:
    for seed in range(first, first + BLOCK):
        chance = random.Random(seed)
        weights = {kind.name: chance.choice([0.0, 0.001, 1.0, 50.0]) for kind in TERMS}
        assert (seed, better_moves(small_host(seed), Request("numa-local", weights=weights))) == (seed, [])


HOST_FOR = {"exclusive": small_host, "isolated": isolated_host, "optimal": isolated_host}


@pytest.mark.parametrize("strategy", HOST_FOR)
@pytest.mark.parametrize("first", BLOCKS)
def test_nor_does_one_of_vcpus_with_cpus_of_their_own(first: int, strategy: str) -> None:
    for seed in range(first, first + BLOCK):
        assert (seed, better_moves(HOST_FOR[strategy](seed), Request(strategy))) == (seed, [])


@pytest.mark.parametrize("strategy", HOST_FOR)
def test_after_the_moves_a_second_plan_changes_nothing(strategy: str) -> None:
    for seed in range(BLOCK):
        host = HOST_FOR[strategy](seed)
        after = applied(host, plan(host, "s", Request(strategy)))
        assert (seed, plan(after, "s", Request(strategy)).changes) == (seed, ())


def test_few_plans_need_an_excuse() -> None:
    """Else the test above would prove little."""
    plans = [(host, plan(host, "s", Request("numa-local"))) for host in map(small_host, range(BLOCK))]
    moves = [(made, move) for host, made in plans for move in single_moves(host, made)]
    assert sum(is_excused(made, move) for made, move in moves) < len(moves) / 10
