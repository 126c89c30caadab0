"""A table in a document, which a command writes between two lines that only its source shows."""

from collections.abc import Iterable

_END = "<!-- end of the table -->\n"


def with_table(document: str, begin: str, lines: Iterable[str]) -> str:
    """The document with these lines of the table after the line ``begin``."""
    before, begin, rest = document.partition(begin)
    _, end, after = rest.partition(_END)
    return before + begin + "\n" + "\n".join(lines) + "\n\n" + end + after
