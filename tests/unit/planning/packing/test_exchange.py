"""The packing by exchanges between nodes, against the rules and against every layout of small hosts."""

import pytest
from hypothesis import given, settings
from support.examples import examples
from support.made_up.every_layout import best_score
from support.made_up.generated_hosts import GeneratedHost, generated, with_homes
from support.made_up.small_packings import node, small_packings

from pinner.planning.packing import exchange
from pinner.planning.packing.allocation import allocate, scored
from pinner.planning.packing.exchange import exchanged
from pinner.planning.packing.heuristic import Packing, pack
from pinner.planning.packing.values import PackingGuest, PackingNode, Score

HOSTS = [generated(seed, friendly=False) for seed in range(40)]


def made(host: GeneratedHost) -> Packing:
    return exchanged(host.nodes, host.guests, pack(host.nodes, host.guests))


def total(scores: list[Score]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*scores, strict=True)))


@settings(max_examples=examples(150), deadline=None)
@given(host=small_packings())
def test_a_small_host_is_never_packed_worse_than_by_the_rules_and_never_below_the_best_layout(host) -> None:
    nodes, guests = host
    rules = pack(nodes, guests)
    found = exchanged(nodes, guests, rules)
    assert best_score(nodes, guests) <= found.score <= rules.score
    assert found.score == scored(nodes, sorted(guests, key=lambda each: (-each.size, each.id)), found.layout)
    assert found.layout.keys() == rules.layout.keys()
    for name, pieces in found.layout.items():
        ranks = next(guest.ranks for guest in guests if guest.id == name)
        assert {nodes[piece.node].id for piece in pieces} <= ranks.keys()
    for position, each in enumerate(nodes):
        here = [g for g in guests if g.id in found.layout and found.layout[g.id][0].node == position]
        assert each.memory is None or sum(guest.memory for guest in here) <= each.memory


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_each_guest_of_a_generated_host_keeps_cpus_of_its_own_on_one_node(share: float) -> None:
    for host in HOSTS[:20]:
        host = with_homes(host, share)
        found = made(host)
        taken = allocate(host.nodes, host.guests, found.layout)
        every = [cpu for cpus in taken.values() for cpu in cpus]
        assert len(every) == len(set(every))
        assert all(len(taken[guest.id]) == guest.size for guest in host.guests if guest.id in found.layout)
        assert all(len({piece.node for piece in pieces}) == 1 for pieces in found.layout.values())


def test_exchanges_bring_guests_nearer_and_save_cores_and_l3_domains_on_generated_hosts() -> None:
    rules, better = {}, {}
    for share in (0.0, 0.5, 1.0):
        hosts = [with_homes(host, share) for host in HOSTS]
        rules[share] = total([pack(host.nodes, host.guests).score for host in hosts])
        better[share] = total([made(host).score for host in hosts])
    assert better[0.0][1:] < rules[0.0][1:]
    for share in (0.5, 1.0):
        unplaced, farther, shared, extra = better[share]
        assert unplaced == rules[share][0]
        assert (farther, shared, extra) < rules[share][1:]
        assert shared < 0.7 * rules[share][2]


def test_the_order_of_the_guests_does_not_matter() -> None:
    host = with_homes(HOSTS[27])
    there, back = (exchanged(host.nodes, each, pack(host.nodes, each)) for each in (host.guests, host.guests[::-1]))
    assert (there.layout, there.score) == (back.layout, back.score)


def on(first: PackingNode, second: PackingNode, guests: list[PackingGuest], homes: dict[str, int]) -> Packing:
    """The packing after exchanges from this one, in which each guest has its first CPUs on the given node."""
    nodes = [first, second]
    there = {
        name: pieces
        for position, each in enumerate(nodes)
        for name, pieces in pack([each], [guest for guest in guests if homes[guest.id] == position]).layout.items()
    }
    layout = {name: tuple(piece._replace(node=homes[name]) for piece in pieces) for name, pieces in there.items()}
    return exchanged(nodes, guests, Packing(layout, scored(nodes, guests, layout), Score(0, 0, 0, 0)))


def test_a_guest_takes_the_room_of_one_that_is_as_good_elsewhere() -> None:
    guests = [PackingGuest("any", 4, {0: 0, 1: 0}), PackingGuest("near", 4, {0: 0, 1: 1})]
    found = on(node(0, [2] * 2), node(1, [2] * 2), guests, {"any": 0, "near": 1})
    assert found.score == (0, 0, 0, 0)
    assert {name: pieces[0].node for name, pieces in found.layout.items()} == {"any": 1, "near": 0}


def test_guests_change_places_where_that_saves_a_shared_core() -> None:
    guests = [PackingGuest(f"g{size}", size, {0: 0, 1: 0}) for size in (2, 3, 4, 5)]
    nodes = node(0, [2] * 4), node(1, [2] * 4)
    assert pack([nodes[0]], [guest for guest in guests if guest.size in (3, 5)]).score.shared == 1
    assert on(*nodes, guests, {"g3": 0, "g5": 0, "g2": 1, "g4": 1}).score == (0, 0, 0, 0)


def test_the_work_is_bounded_by_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MOST_TRIALS", 0)
    for host in (with_homes(host) for host in HOSTS[:20]):
        rules = pack(host.nodes, host.guests)
        found = exchanged(host.nodes, host.guests, rules)
        assert found.score <= rules.score
        assert {name: pieces[0].node for name, pieces in found.layout.items()} == {
            name: pieces[0].node for name, pieces in rules.layout.items()
        }
