import zlib

import pytest
from benchmarks.peers.generated import Shape
from benchmarks.peers.quality import Quality
from benchmarks.planning import comparison, serialisation
from benchmarks.planning.comparison import HOSTS, Case
from benchmarks.report.table import counts
from benchmarks.report.timing import Time, in_turns, line

SMALL = Shape(64, 2, 4)


@pytest.mark.parametrize("mix", ["friendly", "any"])
def test_every_contender_places_the_same_guests_and_its_quality_is_counted(mix):
    *rows, _place, _pack = comparison.measured([Case.of(SMALL, 10, mix)], None)
    assert [row["peer"] for row in rows] == [
        "cpumanager's rules",
        "cpumanager's rules, caches aligned",
        "titus-isolate's greedy rules",
    ]
    for row in rows:
        assert row["quality"].endswith("unplaced 0")
        assert row["their quality"].endswith("unplaced 0")
        assert float(row["theirs / ours"]) > 0


def test_a_row_without_nova_says_how_to_get_it():
    *_, place, pack = comparison.measured([Case.of(SMALL, 10, "friendly")], None)
    assert place["what"].startswith("place, ")
    assert pack["what"].startswith("pack, ")
    for row in (place, pack):
        assert "tox run -e nova" in row["peer"]
        assert "theirs" not in row


def test_the_choice_of_cpus_alone_is_that_of_the_placement():
    case = Case.of(SMALL, 10, "any")
    place, pack = comparison.place_alone(case), comparison.pack_alone(case)
    place(), pack()
    assert pack.places == {name: tuple(cpus) for name, cpus in place.places.items()}


def test_the_quality_is_the_sum_over_all_draws_of_guests():
    cases = [Case.of(SMALL, 10, "any", seed) for seed in (1, 2)]
    alone = [next(comparison.measured([case], None)) for case in cases]
    together = next(comparison.measured(cases, None))
    for column in ("quality", "their quality"):
        sums = [sum(pair) for pair in zip(*(counts(row[column]) for row in alone), strict=True)]
        assert list(counts(together[column])) == sums


def test_the_hosts_have_64_to_1024_cpus_and_10_to_400_guests():
    assert [shape.cpus for shape, _ in HOSTS] == [64, 128, 256, 512, 1024]
    assert (min(count for _, count in HOSTS), max(count for _, count in HOSTS)) == (10, 400)


def test_a_snapshot_is_read_anew_for_each_plan():
    case = Case.of(SMALL, 10, "any")
    first, second = case.snapshot(), case.snapshot()
    assert first == second
    assert first.topology is not second.topology


def test_methods_are_measured_in_turns_at_least_three_times():
    calls = []

    def method(name):
        return lambda: calls.append(name) or Time(len(calls), 0.0)

    times = in_turns({"a": method("a"), "b": method("b")})
    assert calls[:6] == ["a", "b", "a", "b", "a", "b"]
    assert times["b"].cpu - times["a"].cpu == 1


def test_a_ratio_is_that_of_the_cpu_times():
    row = line("x", Time(2.0, 50.0), Quality(1, 2, 3, 4), peer="nova", theirs=Time(9.0, 10.0))
    assert row == {
        "what": "x",
        "ours": "2.00 ms (wall 50.0)",
        "quality": "L3 +1, shared cores 2, nodes +3, unplaced 4",
        "peer": "nova",
        "theirs": "9.00 ms (wall 10.0)",
        "theirs / ours": "4.50",
    }


def test_sizes_are_those_in_the_database():
    case = Case.of(SMALL, 10, "any")
    snapshot, made = serialisation.sizes(serialisation.Input("small", case.text, comparison.REQUEST))
    assert snapshot["what"] == "size of a stored snapshot, small"
    assert snapshot["ours"] == f"{len(zlib.compress(case.text)) / 1024:.1f} KiB"
    assert snapshot["theirs"] == f"{len(case.text) / 1024:.1f} KiB"
    assert float(made["theirs / ours"]) > 1


def test_values_of_a_host_are_measured_beside_json_alone():
    case = Case.of(SMALL, 10, "any")
    given = serialisation.Input("small", case.text, comparison.REQUEST)
    rows = list(serialisation.values(given))
    assert [row["what"] for row in rows] == [
        f"{call} of a {value}, small" for value in ("snapshot", "plan") for call in ("hash", "dump", "load")
    ]
    assert all(row["theirs / ours"] for row in rows)
