"""Steps of the history as samples of the measures by which a placement is judged."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import fmean, median

from pinner.model.outcome.measures import HOST, LOSS, History, loss_share
from pinner.model.outcome.outcome import CARRIED, CORE, MEASURES, PINGS, Comparison, Measure, ObservedMeasure, Sample

_DELAYS = ("delay_vcpu", "delay_emulator", "delay_iothread", "delay_vhost")
_SERIES = {each.name: (each.name,) for each in MEASURES if each.name != LOSS} | {"run_delay": _DELAYS}
"""They are added up for each measure."""
_LOSS_OF = ("drops", "packets_in", "packets_out")
_OF_HOST = ("softnet_drops", "pressure")
JUDGED = tuple(name for names in _SERIES.values() for name in names)
USES = ("use_vcpu", "use_emulator", "use_iothread", "use_vhost")
_MEANS = tuple(each.name for each in PINGS)
"""They are no sum over the guests."""

_Values = dict[datetime, float]


def samples(histories: Iterable[History], guests: Collection[str], step: int) -> tuple[Sample, ...]:
    """Oldest first; ``guests`` are UUIDs. A guest whose series is never known is left out, as the drops of one without
    a tap. Where it is known now and then, the measure's other steps are not known: the sum would be too small."""
    equal = [history for history in histories if history.step == step]
    host = [history for history in equal if history.subject == HOST]
    chosen = [history for history in equal if history.subject in guests]
    others = [history for history in equal if history.subject not in (*guests, HOST)]
    values = {
        measure.name: _measured(host if measure.name in _OF_HOST else chosen, measure.name) for measure in MEASURES
    }
    control = {measure.name: _measured(others, measure.name) for measure in MEASURES if measure.name not in _OF_HOST}
    bits = {name: {history.subject: _known(history, name) for history in chosen} for name in CARRIED.values()}
    times = sorted({at for known in values.values() for at in known})
    return tuple(
        Sample(
            at,
            {name: known[at] for name, known in values.items() if at in known},
            {name: known[at] for name, known in control.items() if at in known},
            {name: {guest: known[at] for guest, known in of.items() if at in known} for name, of in bits.items()},
        )
        for at in times
    )


def control_use(
    histories: Iterable[History], guests: Collection[str], begin: datetime, end: datetime, step: int
) -> tuple[float, ...]:
    """Oldest step first. 100 is one CPU."""
    others = [history for history in histories if history.step == step and history.subject not in (*guests, HOST)]
    known = _summed(others, USES)
    return tuple(known[at] for at in sorted(known) if begin <= at - timedelta(seconds=step) and at <= end)


def between(known: Iterable[Sample], begin: datetime, end: datetime, step: int) -> tuple[Sample, ...]:
    """Without the values that look back beyond ``begin``."""
    inside = (sample for sample in known if begin <= sample.at - timedelta(seconds=step) and sample.at <= end)
    return tuple(_since(sample, begin) for sample in inside)


def _since(sample: Sample, begin: datetime) -> Sample:
    passed = (sample.at - begin).total_seconds()
    far = {measure.name for measure in MEASURES if measure.reach_seconds > passed}

    def near(values: Mapping[str, float]) -> dict[str, float]:
        return {name: value for name, value in values.items() if name not in far}

    return replace(sample, values=near(sample.values), control=near(sample.control)) if far else sample


def watched_measures(*sides: Iterable[Sample]) -> tuple[Measure, ...]:
    """Traffic and pings count only where a sample knows them: a guest may have no tap, and pings are off by default."""
    known = {name for side in sides for sample in side for name in (*sample.values, *sample.control)}
    return tuple(measure for measure in MEASURES if measure in CORE or measure.name in known)


def observed(measure: Measure, before: Sequence[Sample], after: Sequence[Sample]) -> ObservedMeasure:
    name = measure.name
    values = [[sample.values[name] for sample in side if name in sample.values] for side in (before, after)]
    control = [[sample.control[name] for sample in side if name in sample.control] for side in (before, after)]
    return ObservedMeasure(measure, len(values[0]), len(values[1]), _compared(*values), _compared(*control))


def _compared(before: Sequence[float], after: Sequence[float]) -> Comparison | None:
    if not (before and after):
        return None
    differences = [later - earlier for later in after for earlier in before]
    higher = fmean((difference > 0) + (difference == 0) / 2 for difference in differences)
    return Comparison(fmean(before), fmean(after), median(differences), higher)


def _measured(histories: Sequence[History], measure: str) -> _Values:
    if measure == LOSS:
        drops, *passed = (_summed(histories, (name,)) for name in _LOSS_OF)
        shares = {at: loss_share(drops[at], *(known.get(at) for known in passed)) for at in drops}
        return {at: share for at, share in shares.items() if share is not None}
    values = _summed(histories, _SERIES[measure])
    if measure not in _MEANS:
        return values
    guests = sum(bool(_known(history, measure)) for history in histories)
    return {at: value / guests for at, value in values.items()}


def _summed(histories: Iterable[History], series: Iterable[str]) -> _Values:
    known = [values for history in histories for name in series if (values := _known(history, name))]
    if not known:
        return {}
    times = set.intersection(*map(set, known))
    return {at: sum(values[at] for values in known) for at in times}


def _known(history: History, name: str) -> _Values:
    values = enumerate(history.values.get(name, ()))
    step = timedelta(seconds=history.step)
    return {history.begin + index * step: value for index, value in values if value is not None}
