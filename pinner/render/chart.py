"""Charts of measures as SVG or PNG, drawn by RRDtool."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import rrdtool  # type: ignore[import-not-found, import-untyped, unused-ignore]

from pinner.model.errors import Invalid
from pinner.model.outcome.measures import History, Series
from pinner.render import visible

ImageFormat = Literal["SVG", "PNG"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""People with any colour vision can tell them apart (Okabe and Ito, 2008)."""

_MARK = "#333333"
_WIDTH, _HEIGHT = 800, 250


@dataclass(frozen=True, slots=True)
class ChartLine:
    label: str
    history: History
    """All lines of a chart have the same times."""


@dataclass(frozen=True, slots=True)
class Mark:
    at: datetime
    label: str


def chart(
    lines: Sequence[ChartLine], series: Series, image: ImageFormat, title: str, marks: Sequence[Mark] = ()
) -> bytes:
    """Raises Invalid where there is no line to draw."""
    if not lines:
        raise Invalid("guest", "", "a guest or a host with measures")
    begin, step = int(lines[0].history.begin.timestamp()), lines[0].history.step
    count = max(len(line.history.values[series.name]) for line in lines)
    with tempfile.TemporaryDirectory(prefix="pinner-chart-") as folder:
        file, output = Path(folder, "values.rrd"), Path(folder, "image")
        _store(file, lines, series.name, begin, step, count)
        names = [f"DEF:v{number}={file}:v{number}:AVERAGE" for number in range(len(lines))]
        drawn = [
            f"LINE1.5:v{number}{COLOURS[number % len(COLOURS)]}:{_escaped(line.label)}"
            for number, line in enumerate(lines)
        ]
        rrdtool.graph(
            str(output), "--imgformat", image, "--start", str(begin - step), "--end", str(begin + (count - 1) * step),
            "--width", str(_WIDTH), "--height", str(_HEIGHT), "--lower-limit", "0", "--title", visible(title),
            "--vertical-label", series.unit, *names, *drawn, *map(_rule, marks),
        )  # fmt: skip
        return output.read_bytes()


def _rule(mark: Mark) -> str:
    return f"VRULE:{int(mark.at.timestamp())}{_MARK}:{_escaped(mark.label)}:dashes"


def image_format(path: Path) -> ImageFormat:
    """The end of the file's name says it. Raises Invalid."""
    match path.suffix.lower():
        case ".svg":
            return "SVG"
        case ".png":
            return "PNG"
    raise Invalid("--output", os.fspath(path), "a name that ends with .svg or .png")


def _store(file: Path, lines: Sequence[ChartLine], name: str, begin: int, step: int, count: int) -> None:
    sources = [f"DS:v{number}:GAUGE:{2 * step}:0:U" for number in range(len(lines))]
    rrdtool.create(
        str(file), "--step", str(step), "--start", str(begin - step), *sources, f"RRA:AVERAGE:0:1:{count + 1}"
    )
    rows = zip(*(line.history.values[name] for line in lines), strict=True)
    for number, row in enumerate(rows):
        values = ["U" if value is None else repr(value) for value in row]
        rrdtool.update(str(file), ":".join([str(begin + number * step), *values]))


def _escaped(label: str) -> str:
    """A guest chooses its name: a colon ends a label, a backslash begins a code that cannot be escaped at its end."""
    return visible(label).replace("\\", "/").replace(":", "\\:")
