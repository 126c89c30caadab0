import subprocess
import sys

import pytest
from benchmarks import compare
from benchmarks.compare import change, changes, qualities
from benchmarks.report import history
from benchmarks.report.bounded import Measured


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ([10, 10.1, 9.9], [13, 13.1, 12.9], "slower"),
        ([10, 10.1, 9.9], [7, 7.1, 6.9], "faster"),
        ([10, 12, 9], [11, 13, 9.5], "within the noise"),
        ([10, 10, 10], [10.2, 10.2, 10.2], "within the noise"),
    ],
)
def test_a_change_counts_only_beyond_the_spread_and_three_per_cent(before, now, verdict):
    assert change("x", before, now, "ms").verdict == verdict


def test_fewer_answers_per_second_are_slower():
    assert change("x", [100, 100, 100], [50, 50, 50], "/s").verdict == "slower"


def test_rows_that_only_one_tree_has_and_rows_without_a_figure_are_left_out():
    before = {"a": [{"ours": "1.0 ms"}] * 3, "b": [{"ours": "1 ms"}] * 3, "c": [{"ours": "not measured"}] * 3}
    now = {"a": [{"ours": "2.0 ms"}] * 3, "c": [{"ours": "1 ms"}] * 3}
    assert [(each.what, each.part, each.verdict) for each in changes(before, now)] == [("a", 1.0, "slower")]


def test_a_placement_that_is_worse_than_before_is_reported():
    before = {"a": [{"quality": "L3 +1, unplaced 0"}], "b": [{"quality": "L3 +1, unplaced 0"}]}
    now = {"a": [{"quality": "L3 +1, unplaced 1"}], "b": [{"quality": "L3 +0, unplaced 0"}]}
    assert [row["more"] for row in qualities(before, now)] == [
        "worse; before: L3 +1, unplaced 0",
        "better; before: L3 +1, unplaced 0",
    ]


@pytest.mark.skipif(not history.git("rev-parse", "HEAD"), reason="needs the repository")
def test_the_trees_take_turns_and_each_measures_its_own_pinner(monkeypatch, tmp_path):
    seen = []
    with compare.worktree("HEAD") as tree:
        code = "import pinner; from importlib.metadata import entry_points as e; "
        code += "print(pinner.__file__, len(e(group='pinner.strategies')))"
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], env={"PYTHONPATH": str(tree)}, capture_output=True, text=True
        )
        assert done.stdout.startswith(f"{tree}/pinner/__init__.py "), done.stderr
        assert int(done.stdout.split()[1]) >= 3

        def measure(name, bound, environment):
            seen.append(environment["PYTHONPATH"])
            return Measured(({"what": name, "ours": f"{len(seen)} ms"},))

        monkeypatch.setattr(compare, "measure", measure)
        before, now = compare.measured(["plan"], (tree, tmp_path), 3, 1.0)
    assert seen == [str(each) for each in (tree, tmp_path, tmp_path, tree, tree, tmp_path)]
    assert [row["ours"] for row in before["plan"]] == ["1 ms", "4 ms", "5 ms"]
    assert [row["ours"] for row in now["plan"]] == ["2 ms", "3 ms", "6 ms"]
    assert not tree.exists()
    assert str(tree) not in history.git("worktree", "list")


def test_an_unknown_revision_is_named():
    with pytest.raises(LookupError, match="REV=no-such-revision is no revision"), compare.worktree("no-such-revision"):
        pass
