"""pinner outcome: the measures before and after a run, or the verdict of a probe; pinner probe: the test whether a plan
is better than the present placement."""

import time
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.commands.host.measures import SERIES, highest
from pinner.cli.frame.context import CommandContext, agreed, require_answer
from pinner.cli.frame.follow import Interrupted
from pinner.cli.frame.output import Table, facts, moment, print_json, table
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.pictures import require_svg, show, write_picture
from pinner.cli.frame.values import path, probe_windows, window_seconds
from pinner.model.errors import Invalid, NotFound, PinnerError
from pinner.model.outcome.measures import HOST, Span
from pinner.model.outcome.outcome import (
    CORE,
    DEFAULT_SECONDS,
    DEFAULT_WINDOWS,
    PINGS,
    PROBE_ID,
    TRAFFIC,
    WASH_OUT_SECONDS,
)
from pinner.render import visible
from pinner.render.measures import scaled

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pinner.model.outcome.measures import Series
    from pinner.model.outcome.outcome import (
        Measure,
        MeasureOutcome,
        ObservedMeasure,
        Outcome,
        Probe,
        RunOutcome,
        Window,
    )
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
    judgement = probe.outcome.judgement if probe.outcome else probe.state
    show(context, probe, _probe_parts, arguments.output, f"{probe.host}: {judgement} ({probe.id})")
    return 0


def _probe_parts(probe: "Probe") -> "list[RenderableType]":
    return [*verdict_parts(probe), *window_parts(probe)]


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
    watch = f"{observed.watch.state}: {observed.watch.why}" if observed.watch else ""
    undone = f"run {observed.watch.rollback}" if observed.watch else ""
    terms = ", ".join(f"{term.name} {term.before:g} -> {term.after:g}" for term in observed.expected)
    rows = (
        ("run", observed.run),
        ("evidence", observed.label),
        ("expected", terms or "no change of the objective"),
        ("guests", ", ".join(observed.guests)),
        ("control", ", ".join(observed.control)),
        ("from", moment(observed.begin)),
        ("to", moment(observed.end)),
        ("watch", watch),
        ("undone by", undone if observed.watch and observed.watch.rollback else ""),
    )
    context.out.print(facts(*(row for row in rows if row[1])))
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
        drawn.add_row(*_head(measure.measure), *values, control, steps)
    return drawn


def _head(measure: "Measure") -> tuple[str, str, str]:
    return measure.name, measure.unit, measure.better


POLL_SECONDS = 1.0

_PROBE_ABOUT = """\
The server of the host applies the plan and rolls it back, in windows of
random order, and compares run delay, drops, pressure, traffic and pings
between them. More packets without more drops are better, fewer are worse. The
guests that the plan does not change show what changed by itself. A window
does not count if another run, a migration, a restarted guest or a jump of
the clock falls into it.

better, worse:  the difference is not explained by chance
no matter:      the difference lies within a margin that matters to nobody
inconclusive:   more windows are needed; the output says about how many

At its end the host has the placement that the probe found, also after
Ctrl-C. To keep the plan, apply it then. `pinner outcome PROBE_ID` shows the
verdict again, with all windows, also as a picture."""


def register_probe(commands: Commands) -> None:
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
        help=f"windows of each placement (default: {DEFAULT_WINDOWS}; with nine measures, better and worse need 6)",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=window_seconds,
        default=DEFAULT_SECONDS,
        help=f"length of a window (default: {DEFAULT_SECONDS}); {WASH_OUT_SECONDS} s before each do not count",
    )


def probe(context: CommandContext, arguments: Namespace) -> int:
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
    """Raises Interrupted on Ctrl-C, which ends the probe."""
    probe: Probe | None = None
    try:
        probe = pinner.probe(arguments.plan, arguments.windows, arguments.seconds, context.caller)
        context.inform(f"probe {probe.id}: {len(probe.order)} windows, about {probe.total_seconds / 60:.0f} min")
        shown = 0
        while True:
            for number in range(shown, len(probe.windows)):
                _show_window(context, probe, number)
            shown = len(probe.windows)
            if probe.state != "running":
                return probe
            time.sleep(POLL_SECONDS)
            probe = pinner.probe_by_id(probe.id)
    except KeyboardInterrupt:
        if probe is None:
            raise Interrupted("interrupted; `pinner audit list` shows whether a probe was started") from None
        raise Interrupted(_cancelled(context, pinner, probe)) from None


def _cancelled(context: CommandContext, pinner: "Service", probe: "Probe") -> str:
    with suppress(KeyboardInterrupt):
        try:
            pinner.cancel_probe(probe.id, context.caller)
            context.inform(f"interrupted; probe {probe.id} puts the placement back")
            while (probe := pinner.probe_by_id(probe.id)).state == "running":
                time.sleep(POLL_SECONDS)
        except PinnerError as error:
            return f"interrupted; probe {probe.id} goes on: {error}"
    remains = f"; run {probe.left} is still in place" if probe.left else ""
    return f"interrupted; probe {probe.id} is {probe.state}{remains}"


def _show_window(context: CommandContext, probe: "Probe", number: int) -> None:
    window = probe.windows[number]
    values = ", ".join(f"{name} {scaled(value)}" for name, value in window.values.items())
    text = f"does not count: {window.void}" if window.void else values
    total = len(probe.order)
    line = f"[{number + 1:>{len(str(total))}}/{total}] {window.arm:<7} {text}"
    context.err.print(visible(line), style="yellow" if window.void else None, soft_wrap=True)


def verdict_parts(probe: "Probe") -> "list[RenderableType]":
    tested = probe.outcome
    rows = (
        ("probe", probe.id),
        ("state", probe.state),
        ("verdict", tested.judgement if tested else ""),
        ("plan", probe.plan),
        ("host", probe.host),
        ("guests", ", ".join(probe.guests) or "all"),
        ("windows", f"{tested.windows} count, {len(tested.void)} do not" if tested else ""),
        ("missing", f"about {tested.missing} windows of each placement" if tested and tested.missing else ""),
        ("started", moment(probe.started_at)),
        ("ended", moment(probe.ended_at) if probe.ended_at else "not yet"),
        ("why", probe.why),
        ("still placed", f"run {probe.left}" if probe.left else ""),
    )
    parts: list[RenderableType] = [facts(*(row for row in rows if row[1]))]
    if tested and tested.measures:
        parts += ["", _measures(tested)]
    return parts + [visible(f"does not count: {why}") for why in dict.fromkeys(tested.void if tested else ())]


def window_parts(probe: "Probe") -> "list[RenderableType]":
    if not probe.windows:
        return []
    names = {name for window in probe.windows for name in window.values}
    families = ([measure.name for measure in family if measure.name in names] for family in (CORE, TRAFFIC, PINGS))
    parts: list[RenderableType] = []
    for number, members in enumerate([members for members in families if members] or [[]]):
        parts += ["", _window_table(probe.windows, members, shows_why=number == 0)]
    return parts


def _window_table(windows: "tuple[Window, ...]", names: list[str], *, shows_why: bool) -> Table:
    heads = [name.upper().replace("_", " ") for name in names]
    why = ("DOES NOT COUNT",) if shows_why else ()
    drawn = table("WINDOW", "PLACEMENT", *heads, *why, right=("WINDOW", *heads), whole=heads)
    for number, window in enumerate(windows, 1):
        values = (scaled(window.values[name]) if name in window.values else "-" for name in names)
        drawn.add_row(number, window.arm, *values, *((window.void,) if shows_why else ()))
    return drawn


def _measures(tested: "Outcome") -> Table:
    numbers = ("CURRENT", "PLANNED", "EFFECT", "95 %", "P")
    drawn = table("MEASURE", "UNIT", "BETTER", *numbers, "VERDICT", right=numbers, whole=numbers)
    for measure in tested.measures:
        values = (
            scaled(measure.current),
            scaled(measure.planned),
            scaled(measure.effect, "+"),
            _interval(measure),
            f"{measure.p:.3f}",
        )
        drawn.add_row(*_head(measure.measure), *values, measure.judgement)
    return drawn


def _interval(measure: "MeasureOutcome") -> str:
    if measure.low is None or measure.high is None:
        return "not bounded"
    return f"{scaled(measure.low, '+')} to {scaled(measure.high, '+')}"
