"""Output: tables for people and JSON for programs. Text read from a host is always escaped for the terminal."""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO, cast

from pinner import codec
from pinner.cli.frame.tables import Cell, Table
from pinner.render import visible

if TYPE_CHECKING:  # rich is imported in the functions that use it: many commands need none
    from rich.console import Console

    from pinner.model.page import Page

PIPE_WIDTH = 120
"""Columns of the output if it is not a terminal and COLUMNS is not set."""
_TERMINAL = {"FORCE_COLOR", "TTY_COMPATIBLE"}
"""Variables of the environment that make rich treat any output as a terminal."""
_TRAILING = re.compile("[ \t]+$", re.MULTILINE)


class _Trimmed:
    """A text stream whose lines have no blanks at their end: rich pads the last column of a table."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_TRAILING.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(stderr: bool = False) -> "Console":
    """A console without markup; without colour if the output is no terminal or NO_COLOR is set."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    file = None if stream.isatty() else cast("TextIO", _Trimmed(stream))
    width = _width(stream)
    return Console(file=file, stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False, width=width)


def plain_lines(part: Table | str) -> list[str] | None:
    """The lines of a table or a text on stdout; None where rich has to draw them: for colours, or to fold texts."""
    if sys.stdout.isatty() or os.environ.keys() & _TERMINAL:
        return None
    width = _width(sys.stdout)
    if isinstance(part, Table):
        return part.plain(width)
    return [part] if part.isascii() and len(part) <= width and "\n" not in part else None


def _width(stream: TextIO) -> int:
    # rich would draw nothing where COLUMNS is 0, as in a container whose terminal has no size.
    return shutil.get_terminal_size((80 if stream.isatty() else PIPE_WIDTH, 0)).columns


def print_json(value: Any) -> None:
    """Print one JSON document in ASCII, so that it contains no terminal escape."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_value(value: object) -> None:
    """Print a large value as JSON, like ``print_json`` and faster."""
    sys.stdout.write(codec.readable(value) + "\n")


def print_items(values: Iterable[object]) -> None:
    """Print a whole list as JSON, in the shape of a page. Mappings are printed unchanged."""
    print_json({"items": [value if isinstance(value, dict) else codec.plain(value) for value in values], "next": ""})


def plain_list(values: Iterable[object]) -> list[Any]:
    """Values as plain data, each by its own type: the codec does not convert the items of a bare tuple."""
    return [codec.plain(value) for value in values]


def plain_page(page: "Page[Any]") -> dict[str, Any]:
    return {"items": plain_list(page.items), "next": page.next}


def table(*headers: str, right: Collection[str] = (), whole: Collection[str] = ()) -> Table:
    """An empty table. Columns in ``right`` hold numbers. Columns in ``whole`` keep their width if the table has to
    shrink."""
    return Table(headers, right=right, whole=whole)


def cells(*values: object, style: str = "") -> list[Cell]:
    """A row of a table. A Cell stays as it is, any other value is escaped for the terminal."""
    return [value if isinstance(value, Cell) else Cell(visible(str(value)), style) for value in values]


def facts(*rows: tuple[str, object]) -> Table:
    """A table without headers: one name and its value a line."""
    drawn = Table(("name", "value"), show_header=False)
    for name, value in rows:
        drawn.add_row(*cells(name, style="bold"), *cells(value))
    return drawn


def folded(text: object, width: int = 18) -> list[str]:
    """A CPU list in lines of at most ``width`` columns, broken at commas and spaces only."""
    lines = textwrap.wrap(visible(str(text)).replace(",", ", "), width, break_long_words=False)
    return [line.replace(", ", ",") for line in lines] or [""]


def cpu_cell(text: object) -> Cell:
    """A CPU list as a cell of several lines, so that no number is split."""
    return Cell("\n".join(folded(text)))


def cut(text: str) -> Cell:
    """Text in one line of a cell; the end of a long text is cut off."""
    return Cell(visible(text), cut=True)


def moment(at: datetime) -> str:
    """Local time, with seconds."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def kib(amount: int) -> str:
    """An amount of memory in KiB, MiB or GiB."""
    if amount < 1024:
        return f"{amount} KiB"
    return f"{amount / 1024:.0f} MiB" if amount < 1024**2 else f"{amount / 1024**2:.1f} GiB"
