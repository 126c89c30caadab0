import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pinner.cli.output import cells, cpu_cell, cut, facts, table

WORDS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs", "Cc")), max_size=12)
CELLS = st.one_of(WORDS, WORDS.map(cut), st.sets(st.integers(0, 99)).map(lambda ids: cpu_cell(",".join(map(str, ids)))))


def shown(renderable, width=80, **settings):
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False, **settings)
    console.print(renderable)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def drawn_by_rich(quick):
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=quick.show_header)
    drawn.columns, drawn.rows = quick.columns, quick.rows
    return drawn


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1)), st.data())
def test_a_table_looks_as_rich_draws_it(rows, data):
    headers = [f"H{number}" for number in range(len(rows[0]))]
    quick = table(*headers, right=data.draw(st.sets(st.sampled_from(headers))))
    for row in rows:
        quick.add_row(*cells(*row))
    width = data.draw(st.sampled_from((20, 40, 80, 200)))
    assert shown(quick, width) == shown(drawn_by_rich(quick), width)


def test_facts_have_no_header():
    quick = facts(("run", "run-1"), ("state", "applied"))
    assert shown(quick) == shown(drawn_by_rich(quick)) == ["run    run-1", "state  applied"]


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


@pytest.mark.parametrize("text", [Text().append("a", style="red").append("b"), Text("too long " * 20)])
def test_other_texts_are_laid_out_by_rich(text):
    quick = table("NAME")
    quick.add_row(text)
    assert shown(quick) == shown(drawn_by_rich(quick))
