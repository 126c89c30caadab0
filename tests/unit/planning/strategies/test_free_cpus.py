"""The places that a guest may have among free CPUs: how many are tried."""

from unittest.mock import Mock

import pytest
from benchmarks.peers.generated import Shape, guests, host

from pinner.model.cpuset import CpuSet
from pinner.model.plan.request import Request
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


def test_no_place_of_a_guest_is_tried_twice() -> None:
    """Most L3 domains of a full host have no free CPU: each of them was tried, with the same CPUs."""
    hardware, pool = Shape(64, 1, 2).hardware
    placing = guests([4] * 14, hardware.online - pool)
    context = Context.of(host(hardware, placing), Request("isolated"))
    free = FreeCpus(context, pool)
    places = free.take_all(context.guests)
    guest = context.guests[0]
    near = preferences(context.snapshot, guest, context.allocatable.nodes)
    tried = [
        sorted(place.cpus.values())
        for _, place in free.without([guest], places).options(guest, near, CpuSet(), lambda _: True)
    ]
    assert len(tried) == len({*map(tuple, tried)})
