"""Tables for people and JSON for programs. Text from a host is always escaped for the terminal."""

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO, cast

from pinner import codec
from pinner.model.text import affinities
from pinner.render import visible

if TYPE_CHECKING:  # rich is imported in the functions that use it: many commands need none
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from pinner.model.cpuset import CpuSet
    from pinner.model.page import Page

GAP = 2
LEAST = 20
"""The least columns to which a column is folded."""
_HEADER = "bold"


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    style: str = ""
    """A style of rich."""
    cut: bool = False
    """Cut a text that does not fit, instead of folding it."""

    def __rich__(self) -> "Text":
        from rich.text import Text

        return Text(self.text, self.style, no_wrap=self.cut, overflow="ellipsis" if self.cut else None)

    def folded(self, width: int) -> "Cell":
        if self.cut:
            return Cell(self.text if len(self.text) <= width else f"{self.text[: width - 1]}…", self.style)
        lines = (
            textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in self.text.split("\n")
        )
        return Cell("\n".join(lines), self.style)


class Table:
    """A table without inner lines, easy to grep. Columns in ``right`` are numbers; those in ``whole`` do not shrink."""

    def __init__(
        self,
        headers: Collection[str],
        *,
        right: Collection[str] = (),
        whole: Collection[str] = (),
        show_header: bool = True,
    ) -> None:
        self.headers = tuple(headers)
        self.right, self.whole, self.show_header = right, whole, show_header
        self.rows: list[tuple[Cell, ...]] = []

    def add_row(self, *values: object) -> None:
        self.rows.append(tuple(cells(*values)))

    def plain(self, width: int) -> list[str] | None:
        """None where rich has to draw the table: a text is not ASCII, or to fold the last column is not enough."""
        rows = self._rows()
        if not all(cell.text.isascii() for row in rows for cell in row):
            return None
        *others, last = _widths(rows, len)
        free = width - sum(others) - GAP * len(others)
        if last > free >= LEAST and self.headers[-1] not in self.whole:
            rows = [(*row[:-1], row[-1].folded(free)) for row in rows]
            *_, last = _widths(rows, len)
        if last > free:
            return None
        return ["".join(cell.text for cell in line).rstrip() for line in self._lines(rows, len)]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Texts that fit are padded here: rich lays out each cell like a page."""
        from rich.cells import cell_len
        from rich.segment import Segment

        rows = self._rows()
        widths = _widths(rows, cell_len)
        if sum(widths) + GAP * (len(widths) - 1) > options.max_width:
            yield self._laid_out()
            return
        for line in self._lines(rows, cell_len):
            yield from (Segment(cell.text, console.get_style(cell.style) if cell.style else None) for cell in line)
            yield Segment.line()

    def _rows(self) -> list[tuple[Cell, ...]]:
        header = [tuple(Cell(name, _HEADER) for name in self.headers)] if self.show_header else []
        return header + self.rows

    def _lines(self, rows: list[tuple[Cell, ...]], length: Callable[[str], int]) -> Iterator[list[Cell]]:
        widths = _widths(rows, length)
        for row in rows:
            for line in zip_longest(*(cell.text.split("\n") for cell in row), fillvalue=""):
                padded = []
                for number, (part, cell, width) in enumerate(zip(line, row, widths, strict=True)):
                    text = part.rstrip()
                    blank = " " * (width - length(text))
                    text = blank + text if self.headers[number] in self.right else text + blank
                    padded.append(Cell(" " * GAP + text if number else text, cell.style))
                yield padded

    def _laid_out(self) -> "RenderableType":
        import rich.table

        drawn = rich.table.Table(
            box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=_HEADER, show_header=self.show_header
        )
        for name in self.headers:
            drawn.add_column(
                name, justify="right" if name in self.right else "left", overflow="fold", no_wrap=name in self.whole
            )
        for row in self.rows:
            drawn.add_row(*row)
        return drawn


def _widths(rows: list[tuple[Cell, ...]], length: Callable[[str], int]) -> list[int]:
    columns = zip(*rows, strict=True)
    return [max(length(line) for cell in column for line in cell.text.split("\n")) for column in columns]


MASKS = 3
"""A cell names so many masks, and counts the others."""
PIPE_WIDTH = 120
"""Columns without a terminal and COLUMNS."""
_TERMINAL = {"FORCE_COLOR", "TTY_COMPATIBLE"}
"""These variables make rich treat any output as a terminal."""
_TRAILING = re.compile("[ \t]+$", re.MULTILINE)


class _Trimmed:
    """Removes rich's blanks after the last column of a table."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_TRAILING.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(stderr: bool = False) -> "Console":
    """It has no markup, and no colour if the output is no terminal or NO_COLOR is set."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    file = None if stream.isatty() else cast("TextIO", _Trimmed(stream))
    width = _width(stream)
    return Console(file=file, stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=False, width=width)


def plain_lines(part: Table | str) -> list[str] | None:
    """None where rich has to draw them."""
    if sys.stdout.isatty() or os.environ.keys() & _TERMINAL:
        return None
    width = _width(sys.stdout)
    if isinstance(part, Table):
        return part.plain(width)
    return [part] if part.isascii() and len(part) <= width and "\n" not in part else None


def _width(stream: TextIO) -> int:
    # rich would draw nothing where COLUMNS is 0, as in a container whose terminal has no size.
    return shutil.get_terminal_size((80 if stream.isatty() else PIPE_WIDTH, 0)).columns


def print_line(text: str) -> None:
    print(visible(text), flush=True)


def print_json(value: Any) -> None:
    """ASCII only: no terminal escape."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_value(value: object) -> None:
    """Faster for a large value."""
    sys.stdout.write(codec.readable(value) + "\n")


def print_items(values: Iterable[object]) -> None:
    """In the shape of a whole page. Mappings are printed unchanged."""
    print_json({"items": [value if isinstance(value, dict) else codec.plain(value) for value in values], "next": ""})


def plain_list(values: Iterable[object]) -> list[Any]:
    """Values as plain data, each by its own type: the codec does not convert the items of a bare tuple."""
    return [codec.plain(value) for value in values]


def plain_page(page: "Page[Any]") -> dict[str, Any]:
    return {"items": plain_list(page.items), "next": page.next}


def table(*headers: str, right: Collection[str] = (), whole: Collection[str] = ()) -> Table:
    return Table(headers, right=right, whole=whole)


def cells(*values: object, style: str = "") -> list[Cell]:
    """A Cell stays as it is, any other value is escaped for the terminal."""
    return [value if isinstance(value, Cell) else Cell(visible(str(value)), style) for value in values]


def facts(*rows: tuple[str, object]) -> Table:
    """Without the rows whose value has no text."""
    drawn = Table(("name", "value"), show_header=False)
    for name, value in rows:
        if str(value):
            drawn.add_row(*cells(name, style="bold"), *cells(value))
    return drawn


def folded(text: object, width: int = 18) -> list[str]:
    """Lines of at most ``width`` columns, broken at commas and spaces only."""
    lines = textwrap.wrap(visible(str(text)).replace(",", ", "), width, break_long_words=False)
    return [line.replace(", ", ",") for line in lines] or [""]


def cpu_cell(text: object) -> Cell:
    """No number is split."""
    return Cell("\n".join(folded(text)))


def masks(sets: Iterable["CpuSet"]) -> str:
    return affinities(sets, MASKS)


def cut(text: str) -> Cell:
    return Cell(visible(text), cut=True)


def moment(at: datetime) -> str:
    """Local time, with seconds."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def kib(amount: int) -> str:
    if amount < 1024:
        return f"{amount} KiB"
    return f"{amount / 1024:.0f} MiB" if amount < 1024**2 else f"{amount / 1024**2:.1f} GiB"
