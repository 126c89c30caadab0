"""The table of all benchmarks: one line for each figure and peer, with their ratio."""

import re
from collections.abc import Iterable, Iterator

from benchmarks.report.timing import Row

COLUMNS = ("what", "ours", "quality", "peer", "theirs", "their quality", "theirs / ours", "more")
"""The columns that a table has, in this order, where a row fills them."""
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_DIRECTIONS = (("{} / ours", False), ("ours / {}", True))
"""How a row names the ratio to a peer, and whether that is the inverse of theirs / ours."""


def lines(row: Row) -> Iterator[Row]:
    """The lines of a row. A row that has a column for each of its peers, with the ratio in another column, becomes one
    line for each peer, and its other columns become the column ``more``."""
    peers = [
        (name, key, inverse)
        for name in row
        for form, inverse in _DIRECTIONS
        if (key := form.format(name)) in row and name not in COLUMNS
    ]
    lone = [name for name in row if (match := re.fullmatch(r"ours / (.+)", name)) and match[1] not in row]
    used = {*COLUMNS, *(name for name, _, _ in peers), *(key for _, key, _ in peers), *lone}
    common = {name: text for name, text in row.items() if name in COLUMNS}
    if more := "; ".join(f"{name}: {text}" for name, text in row.items() if name not in used and text):
        common["more"] = more
    for name, key, inverse in peers:
        yield common | {"peer": name, "theirs": row[name], "theirs / ours": _ratio(row[key], inverse=inverse)}
    for key in lone:
        yield common | {"peer": key.removeprefix("ours / "), "theirs / ours": _ratio(row[key], inverse=True)}
    if not peers and not lone:
        yield common


def markdown(rows: Iterable[Row]) -> str:
    """The rows as one table in Markdown."""
    found = [line for row in rows for line in lines(row)]
    columns = [column for column in COLUMNS if any(line.get(column) for line in found)] or ["what"]
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*head, *(f"| {' | '.join(line.get(column, '') for column in columns)} |" for line in found)])


def figure(text: str) -> tuple[float, str] | None:
    """The number with which a text begins, and its unit; None where it begins otherwise."""
    match = re.match(rf"({_NUMBER.pattern})\s*([^\s,(]*)", text)
    return (float(match[1].replace(",", "")), match[2]) if match else None


def counts(quality: str) -> tuple[int, ...]:
    """The numbers of a quality."""
    return tuple(int(number.replace(",", "")) for number in re.findall(r"[-+]?\d+", re.sub(r"L3", "", quality)))


def _ratio(text: str, *, inverse: bool) -> str:
    found = figure(text)
    if found is None or not found[0] or not inverse:
        return text
    return f"{1 / found[0]:.2f}"
