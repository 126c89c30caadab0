"""What a plan has brought: pinner outcome, the measures before and after a run, or the verdict of a probe; and pinner
probe, the test whether a plan is better than the present placement."""

import time
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.commands.host.measures import SERIES, highest
from pinner.cli.frame.confirm import agreed, require_answer
from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.follow import Interrupted
from pinner.cli.frame.output import Table, cells, facts, moment, print_json, table
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.pictures import require_svg, show, write_picture
from pinner.cli.frame.values import path, probe_windows, window_seconds
from pinner.model.errors import Invalid, NotFound, PinnerError
from pinner.model.outcome.measures import HOST, Span
from pinner.model.outcome.outcome import DEFAULT_SECONDS, DEFAULT_WINDOWS, MEASURES, PROBE_ID, WASH_OUT_SECONDS
from pinner.render import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pinner.model.outcome.measures import Series
    from pinner.model.outcome.outcome import MeasureOutcome, ObservedMeasure, Outcome, Probe, RunOutcome
    from pinner.service.protocol import Service

_DEFAULT_SERIES = "delay_vcpu"
"""The measure of a picture where none is named."""


def register(commands: Commands) -> None:
    _register_outcome(commands)
    _register_probe(commands)


def _register_outcome(commands: Commands) -> None:
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


POLL_SECONDS = 1.0

_PROBE_ABOUT = """\
The server of the host applies the plan and rolls it back, in windows of
random order, and compares run delay, drops and pressure between them. The
guests that the plan does not change show what changed by itself. A window
does not count if another run, a migration, a restarted guest or a jump of
the clock falls into it.

better, worse:  the difference is not explained by chance
no matter:      the difference lies within a margin that matters to nobody
inconclusive:   more windows are needed; the output says about how many

At its end the host has the placement that the probe found, also after
Ctrl-C. To keep the plan, apply it then. `pinner outcome PROBE_ID` shows the
verdict again, with all windows, also as a picture."""


def _register_probe(commands: Commands) -> None:
    parser = add_command(
        commands,
        "probe",
        probe,
        "test whether a plan is better than the present placement",
        about=_PROBE_ABOUT,
        asks=True,
        status={
            0: "better, or it does not matter, or you answered no",
            1: "worse, inconclusive, or the probe did not reach its end",
        },
        examples=["pinner probe PLAN_ID", "pinner probe PLAN_ID --windows 12 --seconds 60 --yes"],
    )
    parser.add_argument("plan", metavar="PLAN_ID", help="id of a stored plan (see `pinner plan list`)")
    parser.add_argument(
        "--windows",
        metavar="N",
        type=probe_windows,
        default=DEFAULT_WINDOWS,
        help=f"windows of each placement (default: {DEFAULT_WINDOWS}; four measures need 5)",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=window_seconds,
        default=DEFAULT_SECONDS,
        help=f"length of a window (default: {DEFAULT_SECONDS}); {WASH_OUT_SECONDS} s before each do not count",
    )


def probe(context: CommandContext, arguments: Namespace) -> int:
    """Start a probe, show its windows, and print its verdict."""
    require_answer(yes=arguments.yes)
    with context.open() as pinner:
        changes = len(pinner.plan_by_id(arguments.plan).changes)
        minutes = (2 * arguments.windows * (arguments.seconds + WASH_OUT_SECONDS) + WASH_OUT_SECONDS) / 60
        question = f"Make and undo these {changes} changes up to {arguments.windows} times in {minutes:.0f} min?"
        if not agreed(question, yes=arguments.yes):
            return 0
        ended = _followed(context, pinner, arguments)
    if context.json:
        print_json(codec.plain(ended))
    else:
        for part in verdict_parts(ended):
            context.out.print(part)
    return 0 if ended.outcome and ended.outcome.judgement in ("better", "no matter") else 1


def _followed(context: CommandContext, pinner: "Service", arguments: Namespace) -> "Probe":
    """Start a probe and wait for its end. Raises Interrupted on Ctrl-C, which ends the probe."""
    found: Probe | None = None
    try:
        found = pinner.probe(arguments.plan, arguments.windows, arguments.seconds, context.caller)
        context.note(f"probe {found.id}: {len(found.order)} windows, about {found.total_seconds / 60:.0f} min")
        shown = 0
        while True:
            for number in range(shown, len(found.windows)):
                _show_window(context, found, number)
            shown = len(found.windows)
            if found.state != "running":
                return found
            time.sleep(POLL_SECONDS)
            found = pinner.probe_by_id(found.id)
    except KeyboardInterrupt:
        if found is None:
            raise Interrupted("interrupted; `pinner audit list` shows whether a probe was started") from None
        raise Interrupted(_cancelled(context, pinner, found)) from None


def _cancelled(context: CommandContext, pinner: "Service", found: "Probe") -> str:
    with suppress(KeyboardInterrupt):
        try:
            pinner.cancel_probe(found.id, context.caller)
            context.note(f"interrupted; probe {found.id} puts the placement back")
            while (found := pinner.probe_by_id(found.id)).state == "running":
                time.sleep(POLL_SECONDS)
        except PinnerError as error:
            return f"interrupted; probe {found.id} goes on: {error}"
    left = f"; run {found.left} is still in place" if found.left else ""
    return f"interrupted; probe {found.id} is {found.state}{left}"


def _show_window(context: CommandContext, found: "Probe", number: int) -> None:
    each = found.windows[number]
    values = ", ".join(f"{name} {value:.1f}" for name, value in each.values.items())
    text = f"does not count: {each.void}" if each.void else values
    total = len(found.order)
    line = f"[{number + 1:>{len(str(total))}}/{total}] {each.arm:<7} {text}"
    context.err.print(visible(line), style="yellow" if each.void else None, soft_wrap=True)


def verdict_parts(found: "Probe") -> "list[RenderableType]":
    """The facts of a probe, the table of its measures, and why windows do not count."""
    tested = found.outcome
    rows = (
        ("probe", found.id),
        ("state", found.state),
        ("verdict", tested.judgement if tested else ""),
        ("plan", found.plan),
        ("host", found.host),
        ("guests", ", ".join(found.guests) or "all"),
        ("windows", f"{tested.windows} count, {len(tested.void)} do not" if tested else ""),
        ("missing", f"about {tested.missing} windows of each placement" if tested and tested.missing else ""),
        ("started", moment(found.started_at)),
        ("ended", moment(found.ended_at) if found.ended_at else "not yet"),
        ("why", found.why),
        ("still placed", f"run {found.left}" if found.left else ""),
    )
    parts: list[RenderableType] = [facts(*(row for row in rows if row[1]))]
    if tested and tested.measures:
        parts += ["", _measures(tested)]
    return parts + [visible(f"does not count: {why}") for why in dict.fromkeys(tested.void if tested else ())]


def window_parts(found: "Probe") -> "list[RenderableType]":
    """The table of the windows, in their order, with the value of each measure."""
    if not found.windows:
        return []
    known = [each for each in MEASURES if any(each.name in window.values for window in found.windows)]
    names = [each.name.upper().replace("_", " ") for each in known]
    drawn = table("WINDOW", "PLACEMENT", *names, "DOES NOT COUNT", right=("WINDOW", *names), whole=names)
    for number, window in enumerate(found.windows, 1):
        values = (f"{window.values[each.name]:.1f}" if each.name in window.values else "-" for each in known)
        drawn.add_row(*cells(number, window.arm, *values, window.void))
    return ["", drawn]


def _measures(tested: "Outcome") -> Table:
    numbers = ("CURRENT", "PLANNED", "EFFECT", "95 %", "P")
    drawn = table("MEASURE", "UNIT", *numbers, "VERDICT", right=numbers, whole=numbers)
    for each in tested.measures:
        values = (f"{each.current:.1f}", f"{each.planned:.1f}", f"{each.effect:+.1f}", _interval(each), f"{each.p:.3f}")
        drawn.add_row(*cells(each.measure.name, each.measure.unit, *values, each.judgement))
    return drawn


def _interval(each: "MeasureOutcome") -> str:
    return "not bounded" if each.low is None or each.high is None else f"{each.low:+.1f} to {each.high:+.1f}"
