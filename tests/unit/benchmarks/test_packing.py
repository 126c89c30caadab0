import pytest
from benchmarks.planning import packing
from benchmarks.report.table import counts, markdown

pytest.importorskip("highspy")


@pytest.fixture(scope="module")
def rows():
    return list(packing.rows(8))


MIXES = ("friendly sizes", "any sizes")
HOMES = "half of the guests with memory on a node"


def of_mix(rows, mix):
    """The rows of hosts with guests of this kind, each with the number of its hosts."""
    ours = [row for row in rows if row["what"].endswith(f" hosts, {mix}")]
    return {row["what"].partition(",")[0]: (int(row["what"].split(" hosts, ")[0].split()[-1]), row) for row in ours}


def test_rules_exchanges_and_solver_have_rows_for_friendly_sizes_and_for_any(rows):
    assert list(of_mix(rows, "friendly sizes")) == ["packing by rules"], "the rules are at the bound"
    assert list(of_mix(rows, "any sizes"))[:3] == [
        "packing by rules",
        "packing by exchanges",
        "packing by the solver",
    ]
    for mix in MIXES:
        assert of_mix(rows, mix)["packing by rules"][0] == 8
        near = of_mix(rows, f"{mix}, {HOMES}")
        assert list(near)[:2] == ["packing by rules", "packing by exchanges"]
        assert "packing by the solver" not in near
    assert sum(len(of_mix(rows, mix)) for mix in (*MIXES, *(f"{mix}, {HOMES}" for mix in MIXES))) == len(rows)


def test_each_packing_is_beside_its_bound_and_never_better(rows):
    for row in rows:
        *_, unplaced = counts(row["quality"])
        *_, least = counts(row["their quality"])
        assert unplaced >= least
        assert row["hosts with more unplaced guests than the bound"] == str(0) or unplaced > least
        assert row["peer"] == "bound"


def test_each_way_is_tried_for_the_hosts_that_the_one_before_does_not_prove(rows):
    for mix in MIXES:
        found = of_mix(rows, mix)
        left = 8
        for way in ("packing by rules", "packing by exchanges", "packing by the solver"):
            hosts, row = found.get(way, (0, {"proven": "0 of 0"}))
            assert hosts == left
            left -= int(row["proven"].partition(" ")[0])
        assert left == 0


def test_the_table_has_the_quality_of_both(rows):
    first = markdown(rows).splitlines()
    assert first[0] == "| what | ours | quality | peer | their quality | more |"
    assert "proven: " in first[2]
