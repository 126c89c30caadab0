import pytest
from benchmarks import packing
from benchmarks.table import counts, markdown

pytest.importorskip("highspy")


@pytest.fixture(scope="module")
def rows():
    return list(packing.rows(8))


def test_rules_and_solver_have_rows_for_friendly_sizes_and_for_any(rows):
    assert [row["what"].partition(",")[0] for row in rows] == [
        "packing by rules",
        "packing by the solver",
        "packing the same",
    ] * 2
    for mix, of_mix in (("friendly", rows[:3]), ("any", rows[3:])):
        assert all(row["what"].endswith(f" hosts, {mix} sizes") for row in of_mix)
        assert ", 8 hosts, " in of_mix[0]["what"]


def test_each_packing_is_beside_its_bound_and_never_better(rows):
    for row in rows:
        if row["ours"] == "no host":
            continue
        *_, unplaced = counts(row["quality"])
        *_, least = counts(row["their quality"])
        assert unplaced >= least
        assert row["hosts that leave out a guest that fits"] == str(0) or unplaced > least
        assert row["peer"] == "bound"


def test_the_solver_is_asked_for_the_hosts_that_the_rules_do_not_prove(rows):
    for by_rules, by_solver in ((rows[0], rows[1]), (rows[3], rows[4])):
        proven = int(by_rules["proven"].partition(" ")[0])
        assert f", {8 - proven} hosts, " in by_solver["what"]
        assert by_solver["ours"] == "no host" if proven == 8 else counts(by_solver["quality"])


def test_the_table_has_the_quality_of_both(rows):
    first = markdown(rows).splitlines()
    assert first[0] == "| what | ours | quality | peer | their quality | more |"
    assert "proven: " in first[2]
