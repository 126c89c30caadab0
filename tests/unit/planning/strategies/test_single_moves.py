"""No other place of one guest lowers the objective of a fresh plan, unless the plan says why the guest is not there."""

import pytest
from support.made_up.single_moves import is_excused, single_moves
from support.made_up.small_hosts import small_host

from pinner.model.plan.request import Request
from pinner.planning.planner import plan

HOSTS, BLOCK = 2000, 50
BLOCKS = [
    pytest.param(first, marks=[pytest.mark.slow("single moves on 2,000 random hosts")] if first else [])
    for first in range(0, HOSTS, BLOCK)
]


@pytest.mark.parametrize("first", BLOCKS)
def test_no_single_move_lowers_the_objective(first: int) -> None:
    for seed in range(first, first + BLOCK):
        made = plan(host := small_host(seed), "s", Request("numa-local"))
        better = [move for move in single_moves(host, made) if move.objective.gain > 0 and not is_excused(made, move)]
        assert [(seed, move.guest.name, move.nodes) for move in better] == []


def test_few_plans_need_an_excuse() -> None:
    """Else the test above would prove little."""
    plans = [(host, plan(host, "s", Request("numa-local"))) for host in map(small_host, range(BLOCK))]
    moves = [(made, move) for host, made in plans for move in single_moves(host, made)]
    assert sum(is_excused(made, move) for made, move in moves) < len(moves) / 10
