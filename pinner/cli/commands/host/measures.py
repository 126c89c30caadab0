"""pinner top: a host's measures, live; pinner chart: one measure, for a ticket; pinner blame: who delays a guest."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, get_args

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import host_option
from pinner.cli.frame.output import Cell, Table, cells, print_json, table
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.pictures import require_svg, show, write_picture
from pinner.cli.frame.values import path, rounds, span, trace_seconds
from pinner.model.errors import NotFound
from pinner.model.outcome.measures import GUEST_SERIES, HOST, HOST_SERIES, TREND, Span
from pinner.render import counted, visible
from pinner.render.measures import SortKey, host_line, rows, scaled, sorted_rows, sparkline

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType

    from pinner.model.outcome.blame import Blame
    from pinner.model.outcome.measures import History, Measures, Series
    from pinner.render.measures import MeasureRow
    from pinner.service.protocol import Service

REFRESH_SECONDS = 5
_LATEST = timedelta(minutes=1)
"""The greatest age of a latest value, behind the newest one."""
BARS, LEAST_BARS = 24, 9
"""The width of the line of an hour: 150 s for each bar; and in a narrow terminal."""
LONGEST_NAME = 24

_PINGS = ("PING", "PING LOSS", "P99", "WORST")
_COLUMNS = (
    *("DELAY", "VCPU", "EMULATOR", "IOTHREAD", "VHOST", "CPU", "DROPS/S", "LOSS"),
    *("IN/S", "OUT/S", "BIT/S IN", "BIT/S OUT", *_PINGS),
)
_LESS = (
    *("IOTHREAD", "VHOST", "EMULATOR", "BIT/S IN", "BIT/S OUT"),
    *("P99", "PING LOSS", "LOSS", "VCPU", "WORST", "OUT/S", "DROPS/S"),
)
"""The columns that a narrow terminal omits, in this order. DELAY contains the first ones."""


def register_top(commands: Commands) -> None:
    parser = add_command(
        commands,
        "top",
        top,
        "show run delay, CPU use, drops and traffic of each guest, live",
        about="DELAY is the time in milliseconds in each second that threads waited for a CPU:\n"
        "all threads of the guest, and those of each role. CPU is the use of all of them\n"
        "in per cent of one CPU. LOSS is the share of packets that the taps dropped, IN\n"
        "and OUT are what the guest receives and sends. The line shows the delay of the\n"
        "vCPUs within the last hour. `pinner serve` measures every 5 seconds. - is a\n"
        "value that is not known now; a narrow terminal shows fewer columns.\n\n"
        "Ctrl-C ends the command. In a pipe, it prints one table and ends.",
        examples=["pinner top", "pinner top --sort drops", "pinner top --rounds 1"],
    )
    host_option(parser)
    parser.add_argument(
        "--sort",
        choices=get_args(SortKey),
        default="delay",
        help="what comes first: delay (of all threads), cpu, drops, packets or name (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", metavar="N", type=rounds, help="end after N tables (default: 1 in a pipe, else until Ctrl-C)"
    )


def top(context: CommandContext, arguments: Namespace) -> int:
    wanted = arguments.rounds or (None if context.out.is_terminal and not context.json else 1)
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        if context.json:
            print_json(codec.plain(pinner.measures(host, Span())))
            return 0
        with _display(context.out) as show:
            for number in count(1):
                show(_shown(*_read(pinner, host), arguments.sort, context.out.width))
                if number == wanted:
                    return 0
                time.sleep(REFRESH_SECONDS)
    return 0


def _read(pinner: "Service", host: str) -> "tuple[Measures, Measures]":
    """All measures of the last minute, one series of the last hour: all would be too much for hundreds of guests."""
    hour = pinner.measures(host, Span(), None, (TREND, "use_host"))
    ends = [
        history.begin + timedelta(seconds=history.step * (len(_longest(history)) - 1)) for history in hour.histories
    ]
    if not ends:
        return hour, hour
    return pinner.measures(host, Span(begin=max(ends) - _LATEST)), hour


def _longest(history: "History") -> tuple[float | None, ...]:
    return max(history.values.values(), key=len, default=())


@contextmanager
def _display(out: "Console") -> Iterator[Callable[["Group"], None]]:
    """Replaces the table on a terminal; a pipe gets each."""
    if not out.is_terminal:
        yield out.print
        return
    from rich.live import Live

    with Live(console=out, auto_refresh=False) as live:
        yield partial(live.update, refresh=True)


def _shown(measures: "Measures", hour: "Measures", sort: SortKey, width: int) -> "Group":
    from rich.console import Group
    from rich.text import Text

    return Group(Text(visible(f"{measures.host}: {host_line(measures)}")), _table(rows(measures, hour), sort, width))


def _table(guests: "tuple[MeasureRow, ...]", sort: SortKey, width: int) -> Table:
    ordered = sorted_rows(guests, sort)
    texts = [_texts(row) for row in ordered]
    columns = [name for name in _COLUMNS if name not in _PINGS or any(text[name] != "-" for text in texts)]
    free = width - min(LONGEST_NAME, max(len(name) for name in ("GUEST", *(visible(row.name) for row in ordered))))
    for name in (name for name in _LESS if name in columns):
        if _width(columns, texts) + LEAST_BARS <= free:
            break
        columns.remove(name)
    bars = max(LEAST_BARS, min(BARS, free - _width(columns, texts)))
    drawn = table("GUEST", *columns, "LAST HOUR", right=columns, whole=(*columns, "LAST HOUR"))
    for row, text in zip(ordered, texts, strict=True):
        style = "bold red" if row.is_late else ""
        trend = Cell(sparkline(row.trend, bars), "cyan")
        drawn.add_row(*cells(row.name, *(text[name] for name in columns), style=style), trend)
    return drawn


def _texts(row: "MeasureRow") -> dict[str, str]:
    numbers = (_text(delay, ".1f") for delay in (row.delay, *row.delays))
    others = (_text(row.use, ".0f", " %"), _text(row.drops, ".1f"), _text(row.loss, ".2f", " %"))
    traffic = ("-" if value is None else scaled(value) for value in row.traffic)
    ping, ping_loss, *longest = row.pings
    pings = (_text(ping, ".1f", " ms"), _text(ping_loss, ".0f", " %"), *(_text(ms, ".1f", " ms") for ms in longest))
    return dict(zip(_COLUMNS, (*numbers, *others, *traffic, *pings), strict=True))


def _text(value: float | None, digits: str, unit: str = "") -> str:
    """A value that is not known must not look like a good one."""
    return "-" if value is None else f"{value:{digits}}{unit}"


def _width(columns: list[str], texts: list[dict[str, str]]) -> int:
    return sum(2 + max(len(name), *(len(text[name]) for text in texts), 0) for name in columns) + 4


SERIES = {series.name: series for series in (*GUEST_SERIES, *HOST_SERIES)}
_MOST_LINES = 8


def register_chart(commands: Commands) -> None:
    parser = add_command(
        commands,
        "chart",
        chart,
        "draw a series of measures as SVG or PNG",
        about="Measures of guests:\n" + _listed(GUEST_SERIES) + "\n\nMeasures of the host:\n" + _listed(HOST_SERIES),
        examples=["pinner chart delay_vcpu --output delay.svg", "pinner chart drops --last 1d -o drops.png"],
    )
    parser.add_argument("series", metavar="SERIES", choices=tuple(SERIES), help="the measure (see above)")
    host_option(parser)
    parser.add_argument("--guest", metavar="GUEST", help=f"only this guest; default: the {_MOST_LINES} with the most")
    parser.add_argument(
        "--last", metavar="SPAN", type=span, default="1h", help="the last SPAN: 30m, 6h, 2d, 4w (default: %(default)s)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=path, required=True, help="the file: .svg or .png")


def chart(context: CommandContext, arguments: Namespace) -> int:
    # Imported here because only this command draws.
    from pinner.render.chart import ChartLine, image_format
    from pinner.render.chart import chart as draw

    series, image = SERIES[arguments.series], image_format(arguments.output)
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        last = Span(begin=datetime.now(UTC) - arguments.last)
        measures = pinner.measures(host, last, arguments.guest, (series.name,))
    lines = [ChartLine(label, history) for label, history in highest(measures, series)]
    if not lines:
        raise NotFound("measures", series.name)
    write_picture(arguments.output, draw(lines, series, image, f"{measures.host}: {series.about}"))
    if context.json:
        print_json({"file": str(arguments.output), "lines": [codec.plain(line.label) for line in lines]})
    else:
        context.show(visible(f"{arguments.output}: {counted(len(lines), 'line')} of {series.name}"))
    return 0


def highest(measures: "Measures", series: "Series") -> list[tuple[str, "History"]]:
    subjects = [history for history in measures.histories if (history.subject == HOST) == (series in HOST_SERIES)]
    values = {history.subject: _known(history, series) for history in subjects}
    known = [history for history in subjects if values[history.subject]]
    known.sort(key=lambda history: -sum(values[history.subject]))
    return [(history.name or history.subject, history) for history in known[:_MOST_LINES]]


def _known(history: "History", series: "Series") -> list[float]:
    return [value for value in history.values.get(series.name, ()) if value is not None]


def _listed(series: tuple["Series", ...]) -> str:
    return "\n".join(
        f"  {measure.name:14} {measure.unit:10} {measure.better and measure.better + ' is better'}".rstrip()
        for measure in series
    )


_BAR = 20


def register_blame(commands: Commands) -> None:
    parser = add_command(
        commands,
        "blame",
        blame,
        "name the threads that delay a guest",
        about="The kernel traces the scheduler (tracefs). The command shows which threads ran\n"
        "while the guest's threads waited for a CPU, with their share of the waiting.\n"
        "A guest whose threads never wait has no such threads.",
        examples=["pinner blame web1", "pinner blame web1 --seconds 20 --json", "pinner blame web1 -o blame.svg"],
    )
    parser.add_argument("guest", metavar="GUEST", help="the guest's name or UUID")
    host_option(parser)
    parser.add_argument(
        "--seconds",
        metavar="SECONDS",
        type=trace_seconds,
        default=5.0,
        help="the length of the trace, up to 60 s (default: %(default)s)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=path, help="also draw the table: a file .svg")


def blame(context: CommandContext, arguments: Namespace) -> int:
    require_svg(arguments.output)
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        with context.measuring(arguments.seconds):
            answer = pinner.blame(host, arguments.guest, arguments.seconds)
    show(context, answer, _blame_parts, arguments.output, f"{host}: who delays guest {answer.guest}")
    return 0


def _blame_parts(blame: "Blame") -> "list[RenderableType]":
    waited = ", ".join(f"{wait.role} {wait.ms:.1f} ms" for wait in blame.waited)
    parts: list[RenderableType] = [visible(f"guest {blame.guest} waited in {blame.seconds:.1f} s: {waited or 'never'}")]
    if blame.lost:
        parts.append(f"The kernel lost {blame.lost} events: the true figures are higher. Trace for a shorter time.")
    return [*parts, _culprits(blame)] if blame.culprits else parts


def _culprits(blame: "Blame") -> Table:
    drawn = table("SHARE", "", "WAITED", "THREAD", "ID", "PROCESS", "OF", right=("SHARE", "WAITED", "ID", "PROCESS"))
    for culprit in blame.culprits:
        share, bar = f"{100 * culprit.share:.0f} %", "█" * round(culprit.share * _BAR)
        owner = f"guest {culprit.guest}" if culprit.guest else culprit.unit
        has_ended = " (has ended)" if culprit.tid and not culprit.pid else ""
        name = f"{culprit.name or 'a thread'}{has_ended}"
        drawn.add_row(share, bar, f"{culprit.ms:.1f} ms", name, culprit.tid, culprit.pid or "-", owner)
    return drawn
