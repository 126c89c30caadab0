"""The places that a guest may have among free CPUs: how many are tried."""

from dataclasses import replace
from unittest.mock import Mock

import pytest
from benchmarks.peers.generated import Shape, guests, host
from support.hosts import GIB, guest

from pinner.model.cpuset import CpuSet
from pinner.model.plan.request import Request
from pinner.planning.packing import program
from pinner.planning.packing.patterns import Model
from pinner.planning.planner import plan
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import free_cpus
from pinner.planning.strategies.allocator.free_cpus import FreeCpus
from pinner.planning.strategies.allocator.node_choice import preferences


def test_a_guest_without_cells_spans_no_more_nodes_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number of nodes up to all 64 was tried for cells that it does not have: 4 s for 26 guests."""
    hardware, pool = Shape(512, 64, 2).hardware
    spans = Mock(wraps=free_cpus._combinations)
    monkeypatch.setattr(free_cpus, "_combinations", spans)
    made = plan(host(hardware, guests([12] * 4, hardware.online - pool)), "s", Request("isolated"))
    assert made.unplaced == ()
    assert {call.args[0] for call in spans.call_args_list} == {3}


@pytest.mark.parametrize(("replaced", "fully"), [(frozenset(), True), (frozenset({"any"}), False)])
def test_a_move_under_optimal_is_compared_without_a_full_search(
    replaced: frozenset[str], fully: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six trials for each of 100 moves took 105 s."""
    hardware, pool = Shape(64, 2, 4).hardware
    placing = [
        guest(number, size, hardware.online - pool, memory={number % 2: 2 * GIB}, memory_kib=2 * GIB)
        for number, size in enumerate((4, 6, 5, 4, 8, 6, 6, 7, 8))
    ]
    searched: list[bool] = []

    def solve(asked: program.Program, *_: object) -> program.Solution:
        searched.append(isinstance(asked, Model))
        return program.Solution((), 0, 0)

    monkeypatch.setattr(program, "installed", lambda: solve)
    context = replace(Context.of(host(hardware, placing), Request("optimal")), replaced=replaced)
    FreeCpus(context, pool).pack(context.guests)
    assert any(searched) == fully


def test_no_place_of_a_guest_is_tried_twice() -> None:
    """Most L3 domains of a full host have no free CPU: each of them was tried, with the same CPUs."""
    hardware, pool = Shape(64, 1, 2).hardware
    placing = guests([4] * 14, hardware.online - pool)
    context = Context.of(host(hardware, placing), Request("isolated"))
    free = FreeCpus(context, pool)
    places = free.take_all(context.guests)
    first = context.guests[0]
    near = preferences(context.snapshot, first, context.allocatable.nodes)
    tried = [
        sorted(place.cpus.values())
        for _, place in free.without([first], places).options(first, near, CpuSet(), lambda _: True)
    ]
    assert len(tried) == len({*map(tuple, tried)})
