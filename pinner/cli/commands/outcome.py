"""pinner outcome: the measures before and after a run, or the verdict of a probe."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.commands.host.chart import SERIES, highest
from pinner.cli.commands.probe import verdict_parts, window_parts
from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.output import cells, facts, moment, print_json, table
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.pictures import require_svg, show, write_picture
from pinner.cli.frame.tables import Table
from pinner.cli.frame.values import path
from pinner.model.errors import Invalid, NotFound
from pinner.model.outcome.measures import HOST, Span
from pinner.model.outcome.outcome import PROBE_ID
from pinner.render import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pinner.model.outcome.measures import Series
    from pinner.model.outcome.outcome import ObservedMeasure, Probe, RunOutcome
    from pinner.service.protocol import Service

_DEFAULT_SERIES = "delay_vcpu"
"""The measure of a picture where none is named."""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "outcome",
        outcome,
        "show what was measured before and after a run, or in a probe",
        about="The table compares the five minutes before the run with the five minutes after\n"
        "it. DIFFERENCE is the median of all differences between a step after the run\n"
        "and a step before it; below 0 is less than before. HIGHER is the share of such\n"
        "pairs in which the step after the run has the higher value: 50 % is no\n"
        "difference. CONTROL is the difference of guests that the run did not change.\n\n"
        "This is observed and not tested: the load may have changed by itself.\n\n"
        "Of a probe the command shows the verdict and all windows (see `pinner probe\n"
        "--help`).",
        examples=[
            "pinner outcome RUN_ID",
            "pinner outcome RUN_ID --output outcome.svg",
            "pinner outcome PROBE_ID --output verdict.svg",
        ],
    )
    parser.add_argument("id", metavar="RUN_ID|PROBE_ID", help="id of the run (see `pinner run list`), or of the probe")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=path,
        help="also draw the guests before and after the run (.svg or .png), or the verdict of the probe (.svg)",
    )
    parser.add_argument(
        "--series",
        metavar="SERIES",
        choices=tuple(SERIES),
        help=f"the measure of the picture of a run (default: {_DEFAULT_SERIES}; see `pinner chart --help`)",
    )


def outcome(context: CommandContext, arguments: Namespace) -> int:
    if arguments.id.startswith(PROBE_ID):
        return _of_probe(context, arguments)
    with context.open() as pinner:
        found, drawn = pinner.outcome(arguments.id), b""
        if arguments.output is not None:
            drawn = _picture(pinner, found, SERIES[arguments.series or _DEFAULT_SERIES], arguments.output)
    if context.json:
        print_json(codec.plain(found))
    else:
        show_outcome(context, found)
    if arguments.output is not None:
        write_picture(arguments.output, drawn)
    return 0


def _of_probe(context: CommandContext, arguments: Namespace) -> int:
    if arguments.series is not None:
        raise Invalid("--series", arguments.series, "no series, because the picture of a probe has all measures")
    require_svg(arguments.output)
    with context.open() as pinner:
        found = pinner.probe_by_id(arguments.id)
    judgement = found.outcome.judgement if found.outcome else found.state
    show(context, found, _probe_parts, arguments.output, f"{found.host}: {judgement} ({found.id})")
    return 0


def _probe_parts(found: "Probe") -> "list[RenderableType]":
    return [*verdict_parts(found), *window_parts(found)]


def _picture(pinner: "Service", found: "RunOutcome", series: "Series", file: Path) -> bytes:
    """The guests of the outcome before and after the run, with a mark for it. Raises NotFound, Invalid."""
    # Imported here because it loads RRDtool.
    from pinner.render.chart import ChartLine, Mark, chart, image_format

    image, run = image_format(file), pinner.run(found.run)
    measures = pinner.measures(run.host, Span(begin=found.begin, end=found.end), None, (series.name,))
    of_run = [each for each in measures.histories if each.subject == HOST or each.name in found.guests]
    lines = [
        ChartLine(label, history) for label, history in highest(replace(measures, histories=tuple(of_run)), series)
    ]
    if not lines:
        raise NotFound("measures", f"{series.name} of run {found.run}")
    marks = [Mark(run.started_at, f"{run.id} begins")]
    marks += [Mark(run.ended_at, "it ends")] if run.ended_at is not None else []
    title = f"{run.host}: {series.name} before and after {run.id} ({found.label})"
    return chart(lines, series, image, title, marks)


def show_outcome(context: CommandContext, found: "RunOutcome") -> None:
    watch = f"{found.watch.state}: {found.watch.why}" if found.watch else ""
    undone = f"run {found.watch.rollback}" if found.watch else ""
    terms = ", ".join(f"{term.name} {term.before:g} -> {term.after:g}" for term in found.expected)
    rows = (
        ("run", found.run),
        ("evidence", found.label),
        ("expected", terms or "no change of the objective"),
        ("guests", ", ".join(found.guests)),
        ("control", ", ".join(found.control)),
        ("from", moment(found.begin)),
        ("to", moment(found.end)),
        ("watch", watch),
        ("undone by", undone if found.watch and found.watch.rollback else ""),
    )
    context.out.print(facts(*(row for row in rows if row[1])))
    context.out.print()
    context.out.print(_table(found.measures))
    for note in found.notes:
        context.out.print(visible(f"note: {note}"))


def _table(measures: tuple["ObservedMeasure", ...]) -> Table:
    numbers = ("BEFORE", "AFTER", "DIFFERENCE", "HIGHER", "CONTROL", "STEPS")
    drawn = table("MEASURE", "UNIT", *numbers, right=numbers, whole=numbers)
    for each in measures:
        steps = f"{each.steps_before} + {each.steps_after}"
        control = f"{each.control.difference:+.1f}" if each.control else "-"
        found = each.guests
        values = ("-", "-", "-", "-")
        if found:
            values = (
                f"{found.before:.1f}",
                f"{found.after:.1f}",
                f"{found.difference:+.1f}",
                f"{100 * found.higher:.0f} %",
            )
        drawn.add_row(*cells(each.measure.name, each.measure.unit, *values, control, steps))
    return drawn
