"""Drawing for people and JSON for programs; nothing that was read from a host reaches the terminal raw."""

import json
import os
import sys
import textwrap
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pinner import codec
from pinner.model.page import Page
from pinner.render import visible

PIPE_WIDTH = 120
"""Columns where the output is no terminal and COLUMNS is not set."""


def console(stderr: bool = False) -> Console:
    """A console that reads no markup; rich leaves colour out where there is no terminal or NO_COLOR is set."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False, width=width)


def print_json(value: Any) -> None:
    """One JSON document on stdout, in ASCII, so that no terminal escape gets through."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def plain_list(values: Iterable[object]) -> list[Any]:
    """Values as plain data, each by its own type (the codec does not look into a bare tuple)."""
    return [codec.plain(value) for value in values]


def plain_page(page: Page[Any]) -> dict[str, Any]:
    """A page as plain data."""
    return {"items": plain_list(page.items), "next": page.next}


def table(*headers: str, right: Iterable[str] = (), whole: Iterable[str] = ()) -> Table:
    """An empty table without lines, easy to read and to grep.

    The columns named in ``right`` hold numbers; those in ``whole`` keep their width where the table has to shrink.
    """
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        drawn.add_column(
            header, justify="right" if header in right else "left", overflow="fold", no_wrap=header in whole
        )
    return drawn


def cells(*values: object, style: str = "") -> list[Text]:
    """A row for a table; a Text stays as it is, everything else is made safe."""
    return [value if isinstance(value, Text) else Text(visible(str(value)), style=style) for value in values]


def facts(*rows: tuple[str, object]) -> Table:
    """A table of names and what they are, a line each, without headers."""
    drawn = table("", "")
    drawn.show_header = False
    for name, value in rows:
        drawn.add_row(*cells(name, style="bold"), *cells(value))
    return drawn


def folded(text: object, width: int = 18) -> list[str]:
    """CPU lists in lines of at most ``width`` columns, broken at commas and spaces only."""
    lines = textwrap.wrap(visible(str(text)).replace(",", ", "), width, break_long_words=False)
    return [line.replace(", ", ",") for line in lines] or [""]


def cpu_cell(text: object) -> Text:
    """A CPU list in a table: long ones take several lines, so that no number is torn."""
    return Text("\n".join(folded(text)))


def cut(text: str) -> Text:
    """Text of any length in one line of a table: what finds no room is left out."""
    return Text(visible(text), no_wrap=True, overflow="ellipsis")


def moment(at: datetime) -> str:
    """A time for people: local, to the second."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def kib(amount: int) -> str:
    """Memory for people."""
    if amount < 1024:
        return f"{amount} KiB"
    return f"{amount / 1024:.0f} MiB" if amount < 1024**2 else f"{amount / 1024**2:.1f} GiB"
