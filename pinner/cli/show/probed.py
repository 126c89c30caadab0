"""The result of a probe or a tournament, and its windows, as tables for people."""

from collections import Counter
from typing import TYPE_CHECKING

from pinner.cli.frame.output import Table, facts, moment, table
from pinner.model.outcome.outcome import BLOCK, CORE, CURRENT, MAX_WINDOWS, PINGS, TRAFFIC
from pinner.render import visible
from pinner.render.measures import scaled

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pinner.model.outcome.outcome import Measure, MeasureOutcome, Outcome, Probe, Ranking, Window


def result_parts(probe: "Probe") -> "list[RenderableType]":
    tested = probe.outcome or probe.ranking
    rows = (
        ("probe", probe.id),
        ("state", probe.state),
        ("winner" if probe.is_tournament else "verdict", probe.result),
        ("plans" if probe.is_tournament else "plan", ", ".join(probe.plans)),
        ("host", probe.host),
        ("guests", ", ".join(probe.guests) or "all"),
        ("windows", f"{tested.windows} count, {len(tested.void)} do not" if tested else ""),
        ("missing", _missing(probe)),
        ("not judged", _not_judged(probe)),
        ("started", moment(probe.started_at)),
        ("ended", moment(probe.ended_at) if probe.ended_at else "not yet"),
        ("why", probe.why),
        ("kept", f"run {probe.kept}" if probe.kept else ""),
        ("still placed", f"run {probe.left}" if probe.left else ""),
    )
    parts: list[RenderableType] = [facts(*rows)]
    if probe.ranking:
        parts += ["", _places(probe, probe.ranking), "", _pairs(probe.ranking)]
    if probe.outcome and probe.outcome.measures:
        parts += ["", _measures(probe.outcome)]
    return parts + [visible(f"does not count: {why}") for why in dict.fromkeys(tested.void if tested else ())]


def _missing(probe: "Probe") -> str:
    """Of a tournament without a winner: what the nearest pair with the current placement lacks."""
    pairs = probe.ranking.pairs if probe.ranking and not probe.winner else ()
    lacking = [pair.outcome.missing for pair in pairs if CURRENT in (pair.first, pair.second)]
    missing = min(filter(None, lacking), default=0) if probe.is_tournament else probe.outcome and probe.outcome.missing
    if not missing:
        return ""
    needed = len(probe.order) // len(probe.arms) + missing
    needed += needed % BLOCK if probe.is_tournament else 0
    if needed > MAX_WINDOWS:
        return f"more windows of each placement than the {MAX_WINDOWS} that a probe may have"
    return f"about {missing} windows of each placement: try --windows {needed}"


def _not_judged(probe: "Probe") -> str:
    """The measures that too few windows know."""
    outcomes = [pair.outcome for pair in probe.ranking.pairs] if probe.ranking else [probe.outcome]
    judged = {each.measure.name for outcome in outcomes if outcome for each in outcome.measures}
    windows = [window for window in probe.windows if not window.void]
    counts = Counter(name for window in windows for name in window.values if judged and name not in judged)
    return ", ".join(f"{name} (known in {count} of {len(windows)} windows)" for name, count in sorted(counts.items()))


def _places(probe: "Probe", ranking: "Ranking") -> Table:
    drawn = table("RANK", "PLACEMENT", "PLAN", "BETTER THAN", right=("RANK",))
    for place in ranking.places:
        plan = probe.plan_of.get(place.arm, "")
        drawn.add_row(place.rank, place.arm, plan, ", ".join(place.better_than) or "none")
    return drawn


def _pairs(ranking: "Ranking") -> Table:
    """The measures in which two placements differ; of a pair without one, its verdict alone."""
    numbers = ("EFFECT", "95 %", "P")
    drawn = table("PLACEMENT", "BESIDE", "MEASURE", "UNIT", *numbers, "VERDICT", right=numbers, whole=numbers)
    for pair in ranking.pairs:
        differing = [each for each in pair.outcome.measures if each.judgement in ("better", "worse")]
        for each in differing:
            values = (scaled(each.effect, "+"), _interval(each), f"{each.p:.3f}")
            drawn.add_row(pair.second, pair.first, each.measure.name, each.measure.unit, *values, each.judgement)
        if not differing:
            drawn.add_row(pair.second, pair.first, *["-"] * (2 + len(numbers)), pair.outcome.judgement)
    return drawn


def measure_head(measure: "Measure") -> tuple[str, str, str]:
    return measure.name, measure.unit, measure.better


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
        drawn.add_row(*measure_head(measure.measure), *values, measure.judgement)
    return drawn


def _interval(measure: "MeasureOutcome") -> str:
    if measure.low is None or measure.high is None:
        return "not bounded"
    return f"{scaled(measure.low, '+')} to {scaled(measure.high, '+')}"
