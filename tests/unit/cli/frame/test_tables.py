import io
from argparse import Namespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from pinner.cli.frame.context import make_context
from pinner.cli.frame.output import LEAST, cells, console, cpu_cell, cut, facts, plain_lines, table

WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs", "Cc")), max_size=12)
CELLS = st.one_of(WORDS, WORDS.map(cut), st.sets(st.integers(0, 99)).map(lambda ids: cpu_cell(",".join(map(str, ids)))))


def shown(renderable, width=80, **settings):
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False, **settings)
    console.print(renderable)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def drawn_by_rich(quick):
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=quick.show_header)
    for name in quick.headers:
        drawn.add_column(name, justify="right" if name in quick.right else "left", overflow="fold")
    for row in quick.rows:
        drawn.add_row(*row)
    return drawn


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1)), st.data())
def test_a_table_looks_as_rich_draws_it(rows, data):
    headers = [f"H{number}" for number in range(len(rows[0]))]
    quick = table(*headers, right=data.draw(st.sets(st.sampled_from(headers))))
    for row in rows:
        quick.add_row(*cells(*row))
    width = data.draw(st.sampled_from((20, 40, 80, 200)))
    assert shown(quick, width) == shown(drawn_by_rich(quick), width)
    if (plain := quick.plain(200)) is not None:
        assert plain == shown(drawn_by_rich(quick), 200)


def test_facts_have_no_header():
    quick = facts(("run", "run-1"), ("state", "applied"))
    assert shown(quick) == shown(drawn_by_rich(quick)) == ["run    run-1", "state  applied"]


def test_a_fact_whose_value_has_no_text_is_left_out():
    assert shown(facts(("run", "run-1"), ("error", ""), ("lost", 0))) == ["run   run-1", "lost  0"]


def test_a_table_that_fits_is_not_laid_out_by_rich(monkeypatch):
    monkeypatch.setattr(Table, "_render", None)
    quick = table("NAME", "N", right=("N",))
    quick.add_row(*cells("ä", 5))
    quick.add_row(*cells("世界", 10, style="red"))
    assert shown(quick) == ["NAME   N", "ä      5", "世界  10"]


def test_styles_are_those_of_the_cells():
    quick = table("NAME", "STATE")
    quick.add_row(*cells("run-1"), *cells("stuck", style="bold red"))
    lines = shown(quick, force_terminal=True, color_system="standard", legacy_windows=False)
    assert lines == ["\x1b[1mNAME \x1b[0m\x1b[1m  STATE\x1b[0m", "run-1\x1b[1;31m  stuck\x1b[0m"]


SENTENCES = st.lists(st.text("ab-,.", min_size=1, max_size=LEAST), max_size=30).map(" ".join)


@given(st.lists(st.tuples(st.text("n", max_size=20), SENTENCES), min_size=1), st.integers(10, 90))
@example([("n" * 20, "ab " * 20)], 45)
@example([("n", "ab " * 20)], 18)
def test_only_the_last_column_is_folded_without_rich(rows, width):
    quick = table("NAME", "N", "WHY NOT ONE", right=("N",), whole=("N",))
    for number, (name, sentence) in enumerate(rows):
        quick.add_row(*cells(name, number, sentence))
    plain = quick.plain(width)
    if plain is None:
        assert width < len("n" * 20 + "  100  ") + LEAST
    else:
        assert max(map(len, plain)) <= width
        start = plain[0].index("WHY NOT ONE")
        words = " ".join(line[start:] for line in plain[1:]).split()
        assert words == [word for _, sentence in rows for word in sentence.split()]


def test_the_last_column_is_folded_at_blanks_and_keeps_its_column():
    quick = table("SKIPPED", "WHY")
    quick.add_row(*cells("daemon", "its owner restricted it to CPUs 0"))
    quick.add_row(*cells("thread 7", cut("its owner restricted it to CPUs 0")))
    assert quick.plain(32) == [
        "SKIPPED   WHY",
        "daemon    its owner restricted",
        "          it to CPUs 0",
        "thread 7  its owner restricted …",
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [["a" * 81]],
        [["wide: 世界"]],
        [["two columns " * 9, "that are too long " * 6]],
        [["a column " * 8, "a long end " * 3]],
    ],
)
def test_other_tables_are_not_plain(rows):
    quick = table(*(f"H{number}" for number in range(len(rows[0]))))
    for row in rows:
        quick.add_row(*cells(*row))
    assert quick.plain(80) is None
    assert shown(quick) == shown(drawn_by_rich(quick))


def test_a_last_column_that_shall_keep_its_width_is_not_folded():
    quick = table("WHO", "RESULT", whole=("RESULT",))
    quick.add_row(*cells("somebody", "a result of several words"))
    assert quick.plain(30) is None


@pytest.mark.parametrize(
    ("part", "variables", "plain"),
    [
        (facts(("state", "applied")), {}, True),
        ("nothing to do", {}, True),
        ("", {}, True),
        ("two\nlines", {}, False),
        ("long " * 40, {}, False),
        ("世界", {}, False),
        ("nothing to do", {"COLUMNS": "5"}, False),
        (facts(("state", "applied")), {"COLUMNS": "5"}, False),
        (facts(("state", "applied")), {"FORCE_COLOR": "1"}, False),
        ("nothing to do", {"TTY_COMPATIBLE": "1"}, False),
    ],
)
def test_what_fits_is_printed_as_rich_prints_it(part, variables, plain, monkeypatch, capsys):
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (plain_lines(part) is not None) == plain
    make_context(Namespace(url=None, token_file=None, config_file=None, json=False)).show(part)
    ours = capsys.readouterr().out
    console().print(part)
    assert ours == capsys.readouterr().out
