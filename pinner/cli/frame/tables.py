"""Tables. One whose texts fit is drawn without rich, whose import takes as long as a plan."""

import textwrap
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

GAP = 2
LEAST = 20
"""A column is not folded into lines that are shorter."""
_HEADER = "bold"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text that can be shown on a terminal."""

    text: str
    style: str = ""
    """A style of rich."""
    cut: bool = False
    """Whether the end is cut off if the text does not fit. Else the text takes several lines."""

    def __rich__(self) -> "Text":
        from rich.text import Text

        return Text(self.text, self.style, no_wrap=self.cut, overflow="ellipsis" if self.cut else None)

    def folded(self, width: int) -> "Cell":
        """The cell with its lines broken at blanks, or cut off."""
        if self.cut:
            return Cell(self.text if len(self.text) <= width else f"{self.text[: width - 1]}…", self.style)
        lines = (
            textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) for line in self.text.split("\n")
        )
        return Cell("\n".join(lines), self.style)


class Table:
    """A table without lines between its cells, easy to read and to grep.

    Columns in ``right`` hold numbers. Columns in ``whole`` keep their width if the table has to shrink.
    """

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

    def add_row(self, *cells: Cell) -> None:
        self.rows.append(cells)

    def plain(self, width: int) -> list[str] | None:
        """The lines of the table, without styles; None where rich has to draw it: a text is not ASCII, or to fold the
        last column is not enough."""
        rows = self._rows()
        if not all(cell.text.isascii() for row in rows for cell in row):
            return None
        *others, last = _widths(rows, len)
        left = width - sum(others) - GAP * len(others)
        if last > left >= LEAST and self.headers[-1] not in self.whole:
            rows = [(*row[:-1], row[-1].folded(left)) for row in rows]
            *_, last = _widths(rows, len)
        if last > left:
            return None
        return ["".join(cell.text for cell in line).rstrip() for line in self._lines(rows, len)]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Where all texts fit, it is enough to pad them: rich lays out each cell like a page."""
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
        """The lines of the rows, with the texts of each column padded to the same width."""
        widths = _widths(rows, length)
        for row in rows:
            for line in zip_longest(*(cell.text.split("\n") for cell in row), fillvalue=""):
                padded = []
                for number, (each, cell, width) in enumerate(zip(line, row, widths, strict=True)):
                    text = each.rstrip()
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
    """The length of the longest line in each column."""
    columns = zip(*rows, strict=True)
    return [max(length(line) for cell in column for line in cell.text.split("\n")) for column in columns]
