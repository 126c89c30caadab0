"""What the demo prints: about 30 lines, or each step with ``--all``."""

import sys
from collections.abc import Callable

Tell = Callable[[str], None]
"""Prints a line."""


class Output:
    """The lines of the demo on standard output."""

    def __init__(self, *, shows_all: bool) -> None:
        """``shows_all``: the details, too."""
        self.shows_all = shows_all

    def heading(self, text: str) -> None:
        """Print the heading of the next step."""
        blank = "\n" if self.shows_all else ""
        self.line(f"{blank}\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"{blank}== {text}")

    def line(self, text: str) -> None:
        """Print a line."""
        print(text, flush=True)

    def detail(self, text: str) -> None:
        """Print a line with ``--all`` only."""
        if self.shows_all:
            self.line(text)
