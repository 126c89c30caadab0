"""The packing on the best nodes, against every layout of small hosts, and on generated hosts."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from support.examples import examples
from support.made_up.every_layout import best_score
from support.made_up.generated_hosts import generated, with_homes
from support.made_up.small_packings import node, small_packings

from pinner.planning.packing import program
from pinner.planning.packing.allocation import scored
from pinner.planning.packing.exchange import exchanged
from pinner.planning.packing.heuristic import Packing, pack
from pinner.planning.packing.optimal import on_best_nodes
from pinner.planning.packing.program import Program, Solution, Work
from pinner.planning.packing.values import PackingGuest

pytest.importorskip("highspy")


def made(nodes, guests, start: Packing, budget: int = 100) -> Packing:
    solve = program.installed()
    assert solve is not None
    return on_best_nodes(nodes, guests, start, Work(solve, budget))


@settings(max_examples=examples(60), deadline=None)
@given(host=small_packings())
def test_the_guests_without_a_place_and_the_ranks_are_those_of_the_best_of_all_layouts(host) -> None:
    nodes, guests = host
    start, best = pack(nodes, guests), best_score(nodes, guests)
    found = made(nodes, guests, start)
    assert found.bound <= best <= found.score <= start.score
    assert found.bound[:2] == best[:2] == found.score[:2]
    assert found.score == scored(nodes, sorted(guests, key=lambda each: (-each.size, each.id)), found.layout)


@pytest.mark.parametrize(("seed", "friendly"), [(36, True), (36, False), (25, True), (5, True)])
def test_guests_get_nearer_nodes_than_by_exchanges(seed: int, friendly: bool) -> None:
    host = with_homes(generated(seed, friendly=friendly))
    start = exchanged(host.nodes, host.guests, pack(host.nodes, host.guests))
    found = made(host.nodes, host.guests, start)
    assert found.proven
    assert found.score < start.score
    assert all(len({piece.node for piece in pieces}) == 1 for pieces in found.layout.values())


def test_the_memory_of_a_node_is_not_exceeded() -> None:
    nodes = [replace(node(number, [2, 2]), memory=10) for number in range(2)]
    guests = [PackingGuest(f"g{number}", 1, {0: 0, 1: 1}, memory=4) for number in range(4)]
    empty = replace(pack(nodes, []), score=pack(nodes, guests).score._replace(unplaced=4))
    found = made(nodes, guests, empty)
    assert sorted(pieces[0].node for pieces in found.layout.values()) == [0, 0, 1, 1]
    assert (found.score.unplaced, found.score.rank) == (0, 2)


def test_the_program_stays_small_on_every_generated_host() -> None:
    """The pattern model of such a host has up to 300,000 columns times rows, and took the solver up to 14 s."""
    sizes = []

    def solve(program: Program, *_: object) -> Solution:
        sizes.append(len(program.costs[0]) * len(program.rows))
        return Solution((), 0, 0)

    for seed in range(40):
        host = with_homes(generated(seed, friendly=False))
        start = pack(host.nodes, host.guests)
        found = on_best_nodes(host.nodes, host.guests, start, Work(solve, 100))
        assert (found.layout, found.score) == (start.layout, start.score)
    assert 0 < max(sizes) < 15_000
