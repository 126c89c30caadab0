"""The verdict and the windows of a probe as texts and tables."""

from typing import TYPE_CHECKING

from pinner.cli.frame.output import cells, facts, moment, table
from pinner.cli.frame.tables import Table
from pinner.model.outcome.outcome import MEASURES
from pinner.render import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pinner.model.outcome.outcome import MeasureOutcome, Outcome
    from pinner.model.outcome.probe import Probe


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
