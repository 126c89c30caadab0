"""pinner outcome: the measures before and after a run, or the result of a probe."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.commands.host.measures import SERIES, highest
from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.output import Table, facts, moment, print_json, table
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.pictures import require_svg, show, write_picture
from pinner.cli.frame.values import path
from pinner.cli.show.probed import measure_head, result_parts, window_parts
from pinner.model.errors import Invalid, NotFound
from pinner.model.outcome.measures import HOST, Span
from pinner.model.outcome.outcome import PROBE_ID
from pinner.render import visible
from pinner.render.measures import scaled

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pinner.model.outcome.measures import Series
    from pinner.model.outcome.outcome import ObservedMeasure, Probe, RunOutcome
    from pinner.service.protocol import Service

_DEFAULT_SERIES = "delay_vcpu"


def register_outcome(commands: Commands) -> None:
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
        "Of a probe or a tournament the command shows the result and all windows (see\n"
        "`pinner probe --help` and `pinner tournament --help`).",
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
        observed, drawn = pinner.outcome(arguments.id), b""
        if arguments.output is not None:
            drawn = _picture(pinner, observed, SERIES[arguments.series or _DEFAULT_SERIES], arguments.output)
    if context.json:
        print_json(codec.plain(observed))
    else:
        show_outcome(context, observed)
    if arguments.output is not None:
        write_picture(arguments.output, drawn)
    return 0


def _of_probe(context: CommandContext, arguments: Namespace) -> int:
    if arguments.series is not None:
        raise Invalid("--series", arguments.series, "no series, because the picture of a probe has all measures")
    require_svg(arguments.output)
    with context.open() as pinner:
        probe = pinner.probe_by_id(arguments.id)
    show(context, probe, _probe_parts, arguments.output, f"{probe.host}: {probe.result or probe.state} ({probe.id})")
    return 0


def _probe_parts(probe: "Probe") -> "list[RenderableType]":
    return [*result_parts(probe), *window_parts(probe)]


def _picture(pinner: "Service", observed: "RunOutcome", series: "Series", file: Path) -> bytes:
    # Imported here because it loads RRDtool.
    from pinner.render.chart import ChartLine, Mark, chart, image_format

    image, run = image_format(file), pinner.run(observed.run)
    measures = pinner.measures(run.host, Span(begin=observed.begin, end=observed.end), None, (series.name,))
    of_run = [history for history in measures.histories if history.subject == HOST or history.name in observed.guests]
    lines = [
        ChartLine(label, history) for label, history in highest(replace(measures, histories=tuple(of_run)), series)
    ]
    if not lines:
        raise NotFound("measures", f"{series.name} of run {observed.run}")
    marks = [Mark(run.started_at, f"{run.id} begins")]
    marks += [Mark(run.ended_at, "it ends")] if run.ended_at is not None else []
    title = f"{run.host}: {series.name} before and after {run.id} ({observed.label})"
    return chart(lines, series, image, title, marks)


def show_outcome(context: CommandContext, observed: "RunOutcome") -> None:
    watch = observed.watch
    terms = ", ".join(f"{term.name} {term.before:g} -> {term.after:g}" for term in observed.expected)
    rows = (
        ("run", observed.run),
        ("evidence", observed.label),
        ("expected", terms or "no change of the objective"),
        ("guests", ", ".join(observed.guests)),
        ("control", ", ".join(observed.control)),
        ("from", moment(observed.begin)),
        ("to", moment(observed.end)),
        ("watch", f"{watch.state}: {watch.why}" if watch else ""),
        ("undone by", f"run {watch.rollback}" if watch and watch.rollback else ""),
    )
    context.out.print(facts(*rows))
    context.out.print()
    context.out.print(_table(observed.measures))
    for note in observed.notes:
        context.out.print(visible(f"note: {note}"))


def _table(measures: tuple["ObservedMeasure", ...]) -> Table:
    numbers = ("BEFORE", "AFTER", "DIFFERENCE", "HIGHER", "CONTROL", "STEPS")
    drawn = table("MEASURE", "UNIT", "BETTER", *numbers, right=numbers, whole=numbers)
    for measure in measures:
        steps = f"{measure.steps_before} + {measure.steps_after}"
        control = scaled(measure.control.difference, "+") if measure.control else "-"
        guests = measure.guests
        values = ("-", "-", "-", "-")
        if guests:
            values = (
                scaled(guests.before),
                scaled(guests.after),
                scaled(guests.difference, "+"),
                f"{100 * guests.higher:.0f} %",
            )
        drawn.add_row(*measure_head(measure.measure), *values, control, steps)
    return drawn
