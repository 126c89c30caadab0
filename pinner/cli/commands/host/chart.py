"""pinner chart: a picture of measures, for a ticket."""

from argparse import Namespace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import host_option
from pinner.cli.frame.output import print_json
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.pictures import write_picture
from pinner.cli.frame.values import path, span
from pinner.model.errors import NotFound
from pinner.model.outcome.measures import GUEST_SERIES, HOST, HOST_SERIES, Span
from pinner.render import counted, visible

if TYPE_CHECKING:
    from pinner.model.outcome.measures import History, Measures, Series

SERIES = {series.name: series for series in (*GUEST_SERIES, *HOST_SERIES)}
_MOST_LINES = 8


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "chart",
        chart,
        "draw a series of measures as SVG or PNG",
        about="Measures of guests:\n" + _listed(GUEST_SERIES) + "\n\nMeasures of the host:\n" + _listed(HOST_SERIES),
        examples=[
            "pinner chart delay_vcpu --output delay.svg",
            "pinner chart drops --last 1d -o drops.png",
        ],
    )
    parser.add_argument("series", metavar="SERIES", choices=tuple(SERIES), help="the measure (see above)")
    host_option(parser)
    parser.add_argument("--guest", metavar="GUEST", help=f"only this guest; default: the {_MOST_LINES} with the most")
    parser.add_argument(
        "--last",
        metavar="SPAN",
        type=span,
        default="1h",
        help="the last SPAN: 30m, 6h, 2d, 4w (default: %(default)s)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=path, required=True, help="the file: .svg or .png")


def chart(context: CommandContext, arguments: Namespace) -> int:
    # Imported here because only this command draws.
    from pinner.render.chart import ChartLine, image_format
    from pinner.render.chart import chart as draw

    series, image = SERIES[arguments.series], image_format(arguments.output)
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        found = pinner.measures(host, Span(begin=datetime.now(UTC) - arguments.last), arguments.guest, (series.name,))
    lines = [ChartLine(label, history) for label, history in highest(found, series)]
    if not lines:
        raise NotFound("measures", series.name)
    write_picture(arguments.output, draw(lines, series, image, f"{found.host}: {series.about}"))
    if context.json:
        print_json({"file": str(arguments.output), "lines": [codec.plain(line.label) for line in lines]})
    else:
        context.show(visible(f"{arguments.output}: {counted(len(lines), 'line')} of {series.name}"))
    return 0


def highest(found: "Measures", series: "Series") -> list[tuple[str, "History"]]:
    """The label and the values of each line: the host's, or those of the guests with the highest sums."""
    subjects = [each for each in found.histories if (each.subject == HOST) == (series in HOST_SERIES)]
    values = {
        each.subject: [value for value in each.values.get(series.name, ()) if value is not None] for each in subjects
    }
    known = sorted((each for each in subjects if values[each.subject]), key=lambda each: -sum(values[each.subject]))
    return [(each.name or each.subject, each) for each in known[:_MOST_LINES]]


def _listed(series: tuple["Series", ...]) -> str:
    return "\n".join(f"  {each.name:14} {each.unit}" for each in series)
