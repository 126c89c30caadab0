"""The pattern model, against every layout of small hosts, and on generated hosts."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from support.examples import examples
from support.made_up.every_layout import best_score
from support.made_up.generated_hosts import generated
from support.made_up.small_packings import node, small_packings

from pinner.planning.packing import program
from pinner.planning.packing.allocation import allocate, scored
from pinner.planning.packing.heuristic import Packing, pack
from pinner.planning.packing.optimal import NOT_QUICK, TOO_LARGE, improved
from pinner.planning.packing.patterns import Model, build, partitions
from pinner.planning.packing.program import Solution
from pinner.planning.packing.values import PackingGuest, Score

pytest.importorskip("highspy")


def best(nodes, guests, budget: int = 1000) -> Packing:
    return improved(nodes, guests, pack(nodes, guests), budget, solve=program.installed())


@settings(max_examples=examples(60), deadline=None)
@given(host=small_packings())
def test_the_model_finds_and_proves_the_best_of_all_layouts_of_a_small_host(host) -> None:
    nodes, guests = host
    made = best(nodes, guests)
    assert made.score == scored(nodes, guests, made.layout) == best_score(nodes, guests)
    assert (made.proven, made.note, made.gap) == (True, "", 0.0)


def test_the_model_proves_hard_generated_hosts_and_places_each_guest_on_one_node() -> None:
    for seed in (17, 25, 37, 41, 43, 95):
        host = generated(seed, friendly=False)
        rules, made = pack(host.nodes, host.guests), best(host.nodes, host.guests, 2000)
        assert not rules.proven
        assert made.proven
        assert made.score <= rules.score
        taken = allocate(host.nodes, host.guests, made.layout)
        assert all(len(taken.get(guest.id, ())) in (0, guest.size) for guest in host.guests)
        assert all(len({piece.node for piece in pieces}) == 1 for pieces in made.layout.values())


def test_the_size_of_the_model_does_not_grow_with_the_number_of_guests() -> None:
    nodes = [node(0, *[[2] * 4] * 8)]
    sizes = [
        [PackingGuest(f"g{n}-{size}", size, {0: 0}) for size in (2, 3, 5) for n in range(count)] for count in (1, 10)
    ]
    few, many = (build(nodes, guests, ((0,),)) for guests in sizes)
    assert few is not None
    assert many is not None
    assert (len(few.columns), len(few.rows)) == (len(many.columns), len(many.rows))


def test_a_budget_that_is_too_small_gives_the_layout_of_the_rules_with_its_bound_and_says_so() -> None:
    host = generated(17, friendly=False)
    made = best(host.nodes, host.guests, budget=0)
    rules = pack(host.nodes, host.guests)
    assert (made.score, made.layout) == (rules.score, rules.layout)
    assert rules.bound <= made.bound < made.score
    assert made.note == "the budget of 0 nodes is too small to prove this placement; raise it"
    assert made.gap > 0


def test_without_the_solver_the_layout_of_the_rules_says_how_to_install_it() -> None:
    host = generated(17, friendly=False)
    rules = pack(host.nodes, host.guests)
    made = improved(host.nodes, host.guests, rules, solve=None)
    assert (made.layout, made.proven) == (rules.layout, False)
    assert made.note.endswith("the solver is not installed: pip install 'pinner[optimal]'")


def test_an_l3_domain_with_too_many_patterns_is_left_to_the_rules() -> None:
    nodes = [node(0, [2] * 32, [2] * 32), node(1, [2] * 4)]
    guests = [PackingGuest(f"g{n}", size, {0: 0, 1: 0}) for n, size in enumerate((43, 43, 41))]
    assert best(nodes, guests).note == TOO_LARGE


def test_a_large_model_is_not_solved_quickly() -> None:
    """The solver took 14 s for such a model: guests with memory on the nodes of a host with 512 CPUs."""
    host = generated(6, friendly=True)
    guests = [replace(guest, ranks={n: int(n != k % 8) for n in range(8)}) for k, guest in enumerate(host.guests)]
    rules = pack(host.nodes, guests)

    def solve(asked: program.Program, *_: object) -> Solution:
        assert not isinstance(asked, Model)
        return Solution((), 0, 0)

    start = replace(rules, bound=Score(0, 0, 0, -1))
    made = improved(host.nodes, guests, start, solve=solve, quickly=True)
    assert (made.layout, made.proven, made.note) == (rules.layout, False, NOT_QUICK)
    made = improved(host.nodes, guests, start, 900, solve=solve)
    assert (made.layout, made.proven) == (rules.layout, False)
    assert made.note == "the budget of 900 nodes is too small to prove this placement; raise it"


def test_a_larger_model_gets_fewer_nodes_of_the_search_tree() -> None:
    """1000 nodes of a model with 1481 columns and 507 rows took 31 s."""

    def of_size(columns: int, rows: int) -> program.Program:
        return program.Program((program.ProgramRow((), 0, 0),) * rows, ((0,) * columns,), Score(0, 0, 0, 0))

    work = program.Work(lambda *_: Solution((), 0, 0), 1000)
    assert [work.nodes(of_size(*size)) for size in ((20, 50), (200, 50), (500, 300))] == [1000, 100, 7]
    assert [work.affords(of_size(*size)) for size in ((500, 300), (501, 300))] == [True, False]
    assert replace(work, budget=0).nodes(of_size(1, 1)) == 0


def test_the_patterns_of_a_domain_are_the_partitions_of_its_free_cpus() -> None:
    assert partitions(4, 4) == ((4,), (3, 1), (2, 2), (2, 1, 1), (1, 1, 1, 1))
    assert len(partitions(16, 16)) == 231
