"""A table that is drawn fast where all its texts fit."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

GAP = 2
"""Blanks between two columns."""

_Cell = tuple[list[str], StyleType]
"""The lines of a cell, and their style."""


class QuickTable(Table):
    """A table without lines between its cells.

    rich lays out each cell like a page, which takes as long as a plan of a hundred guests. Where every text has one
    style and fits in its column, it is enough to pad the texts.
    """

    def __init__(self) -> None:
        super().__init__(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """See rich."""
        columns = self._columns()
        widths = [max((cell_len(line) for lines, _ in cells for line in lines), default=0) for cells in columns or ()]
        if columns is None or sum(widths) + GAP * (len(widths) - 1) > options.max_width:
            yield from super().__rich_console__(console, options)
            return
        for row in zip(*columns, strict=True):
            yield from self._row(console, row, widths)

    def _columns(self) -> list[list[_Cell]] | None:
        """The cells of each column, its header first; None where a text has several styles."""
        found = []
        for column in self.columns:
            texts = [text if isinstance(text, Text) else Text(str(text)) for text in column.cells]
            if any(text.spans for text in texts):
                return None
            header: list[_Cell] = [([str(column.header)], self.header_style)] if self.show_header else []
            found.append([*header, *((text.plain.split("\n"), text.style) for text in texts)])
        return found

    def _row(self, console: Console, row: Sequence[_Cell], widths: Sequence[int]) -> Iterator[Segment]:
        styles = [console.get_style(style) if style else None for _, style in row]
        for line in zip_longest(*(lines for lines, _ in row), fillvalue=""):
            for number, (each, style, width, column) in enumerate(zip(line, styles, widths, self.columns, strict=True)):
                text = each.rstrip()
                blank = " " * (width - cell_len(text))
                padded = blank + text if column.justify == "right" else text + blank
                yield Segment(" " * GAP + padded if number else padded, style)
            yield Segment.line()
