"""The packing by rules, against the arithmetic bound and against every layout of small hosts."""

import pytest
from hypothesis import given, settings
from support.examples import examples
from support.made_up.every_layout import best_score
from support.made_up.generated_hosts import generated, with_homes
from support.made_up.small_packings import node, small_packings

from pinner.planning.packing import heuristic
from pinner.planning.packing.allocation import allocate, bound, cpus, least_rank, scored
from pinner.planning.packing.heuristic import pack
from pinner.planning.packing.values import PackingGuest, PackingNode


def guests(*sizes: int, nodes: int = 1) -> list[PackingGuest]:
    return [PackingGuest(f"g{n}", size, dict.fromkeys(range(nodes), 0)) for n, size in enumerate(sizes, start=1)]


def pieces(nodes: list[PackingNode], *sizes: int) -> dict[str, tuple[int, ...]]:
    asked = guests(*sizes, nodes=len(nodes))
    return allocate(nodes, asked, pack(nodes, asked).layout)


@settings(max_examples=examples(150), deadline=None)
@given(host=small_packings())
def test_no_layout_of_a_small_host_is_below_the_bound_and_nobody_is_left_out_who_fits(host) -> None:
    nodes, asked = host
    best, made = best_score(nodes, asked), pack(nodes, asked)
    assert bound(nodes, asked) <= best <= made.score
    assert made.score.unplaced == best.unplaced
    if not best.unplaced:
        assert least_rank(nodes, asked) <= best.rank


def test_guests_whose_best_node_is_too_small_pay_for_their_second_best_one(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node(0, [2] * 4), node(1, [2] * 8)]
    asked = [PackingGuest(f"g{n}", size, {0: 0, 1: 1 + n}) for n, size in enumerate((2, 2, 4, 4))]
    assert least_rank(nodes, asked) == 1
    assert least_rank(nodes, [*asked, PackingGuest("far", 2, {1: 3}), PackingGuest("any", 2, {0: 0, 1: 0})]) == 4
    asked = [PackingGuest(f"g{n}", 4, {0: 0, 1: 1}) for n in range(4)]
    layouts: list[object] = []
    monkeypatch.setattr(heuristic, "scored", lambda *given: layouts.append(given) or scored(*given))
    assert pack(nodes, asked).score == (0, least_rank(nodes, asked), 0, 0) == (0, 2, 0, 0)
    assert len(layouts) == 1, "no other layout is better"


@pytest.mark.parametrize("friendly", [True, False])
def test_each_guest_of_a_generated_host_gets_cpus_of_its_own_on_one_node(friendly: bool) -> None:
    for seed in range(20):
        host = generated(seed, friendly=friendly)
        made = pack(host.nodes, host.guests)
        taken = allocate(host.nodes, host.guests, made.layout)
        every = [cpu for found in taken.values() for cpu in found]
        assert len(every) == len(set(every))
        homes = [{cpu for d in each.domains for core in d.cores for cpu in cpus(core.free)} for each in host.nodes]
        for guest in host.guests:
            assert len(taken[guest.id]) == guest.size
            assert any(set(taken[guest.id]) <= home for home in homes)
        assert made.score == scored(host.nodes, host.guests, made.layout)


def test_every_friendly_host_is_packed_at_the_bound() -> None:
    for seed in range(100):
        host = generated(seed, friendly=True)
        made = pack(host.nodes, host.guests)
        assert made.proven
        assert (made.score.unplaced, made.score.extra_l3) == (0, 0)


def test_no_guest_is_left_out_because_of_nodes_that_others_prefer() -> None:
    for seed in range(30, 50):
        host = generated(seed, friendly=False)
        near = with_homes(host, 0.5)
        assert pack(near.nodes, near.guests).score.unplaced == pack(host.nodes, host.guests).score.unplaced


def test_whole_cores_come_first_and_odd_guests_share_a_core_only_where_cores_are_missing() -> None:
    assert pieces([node(0, [2] * 5)], 3, 3) == {"g1": (0, 1, 2), "g2": (4, 5, 6)}
    assert pieces([node(0, [2] * 3)], 3, 3) == {"g1": (0, 1, 2), "g2": (4, 5, 3)}


def test_a_guest_takes_the_fullest_l3_domain_that_has_room() -> None:
    assert pieces([node(0, [2] * 4, [2] * 2)], 4) == {"g1": (8, 9, 10, 11)}


def test_guests_spread_over_nodes_with_most_free_cpus() -> None:
    assert pieces([node(0, [2] * 4), node(1, [2] * 4)], 2, 2) == {"g1": (0, 1), "g2": (100, 101)}


def test_a_core_that_a_guest_has_begun_is_taken_last() -> None:
    assert pieces([node(0, [1, 2], begun=1)], 2) == {"g1": (2, 3)}
    score = pack([node(0, [1, 2], begun=1)], guests(3)).score
    assert (score.unplaced, score.shared) == (0, 1)


def test_another_guest_moves_where_that_makes_room() -> None:
    asked = [PackingGuest("wide", 4, {0: 0}), PackingGuest("any", 4, {0: 0, 1: 0})]
    assert pack([node(0, [2, 2]), node(1, [2, 2])], asked).score.unplaced == 0


def test_memory_limits_a_node_as_cpus_do() -> None:
    nodes = [PackingNode(0, node(0, [2] * 4).domains, memory=8), PackingNode(1, node(1, [2] * 4).domains, memory=8)]
    asked = [PackingGuest(f"g{n}", 2, {0: 0, 1: 0}, memory=6) for n in range(3)]
    made = pack(nodes, asked)
    assert (len(made.layout), {piece[0].node for piece in made.layout.values()}) == (2, {0, 1})
