"""No other place of one guest lowers the objective of a fresh plan, unless the plan says why the guest is not there."""

import random

import pytest
from support.made_up.single_moves import is_excused, single_moves
from support.made_up.small_hosts import small_host

from pinner.model.machine.topology import NodeId
from pinner.model.plan.objective import TERMS
from pinner.model.plan.request import Request
from pinner.planning.planner import plan

HOSTS, BLOCK = 2000, 50
BLOCKS = [
    pytest.param(first, marks=[pytest.mark.slow("single moves on 2,000 random hosts")] if first else [])
    for first in range(0, HOSTS, BLOCK)
]


def better_moves(seed: int, request: Request) -> list[tuple[int, str, tuple[NodeId, ...]]]:
    made = plan(host := small_host(seed), "s", request)
    better = [move for move in single_moves(host, made) if move.objective.gain > 0 and not is_excused(made, move)]
    return [(seed, move.guest.name, move.nodes) for move in better]


@pytest.mark.parametrize("first", BLOCKS)
def test_no_single_move_lowers_the_objective(first: int) -> None:
    seeds = range(first, first + BLOCK)
    assert [move for seed in seeds for move in better_moves(seed, Request("numa-local"))] == []


@pytest.mark.parametrize("first", BLOCKS)
def test_nor_does_one_with_other_weights(first: int) -> None:
    for seed in range(first, first + BLOCK):
        chance = random.Random(seed)
        weights = {kind.name: chance.choice([0.0, 0.001, 1.0, 50.0]) for kind in TERMS}
        assert better_moves(seed, Request("numa-local", weights=weights)) == []


def test_few_plans_need_an_excuse() -> None:
    """Else the test above would prove little."""
    plans = [(host, plan(host, "s", Request("numa-local"))) for host in map(small_host, range(BLOCK))]
    moves = [(made, move) for host, made in plans for move in single_moves(host, made)]
    assert sum(is_excused(made, move) for made, move in moves) < len(moves) / 10
