"""Measures as rows of a table, and as lines of bars."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from pinner.model.outcome.measures import GUEST_SERIES, HOST, HOST_SERIES, LOSS, PING_SERIES, TREND, History, Measures

SortKey = Literal["delay", "cpu", "drops", "packets", "name"]

HIGH_DELAY = 50.0
"""ms/s: 5 % of CPU ready time, from which on monitoring products warn."""

_DELAYS = tuple(series.name for series in GUEST_SERIES if series.name.startswith("delay_"))
_USES = tuple(series.name for series in GUEST_SERIES if series.name.startswith("use_"))
_TRAFFIC = ("packets_in", "packets_out", "bits_in", "bits_out")
_LATEST = 3
"""The last values that count as the latest: the newest step is not over yet."""


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """A value that is not known now is None."""

    name: str
    delays: tuple[float | None, ...]
    """ms/s by role: vcpu, emulator, iothread, vhost."""
    use: float | None
    """Per cent of one CPU, of all threads."""
    drops: float | None
    """Packets/s of the taps; None also for a guest without a tap."""
    trend: tuple[float | None, ...]
    """The run delay of the vCPUs, oldest first."""
    loss: float | None
    """Per cent of the packets, of the taps."""
    traffic: tuple[float | None, ...]
    """Packets/s in and out, bits/s in and out."""
    pings: tuple[float | None, ...]
    """By PING_SERIES; None: not pinged, or no answer."""

    @property
    def delay(self) -> float | None:
        """In ms/s."""
        return _sum(self.delays)

    @property
    def is_late(self) -> bool:
        return (self.delays[0] or 0.0) >= HIGH_DELAY


def rows(measures: Measures, hour: Measures | None = None) -> tuple[MeasureRow, ...]:
    """Running guests by name; the trend is that of ``hour``."""
    running = [history for history in measures.histories if history.name]
    trends = {history.subject: history.values.get(TREND, ()) for history in (hour or measures).histories}
    ordered = sorted(running, key=lambda history: (history.name, history.subject))
    return tuple(_row(history, trends.get(history.subject, ())) for history in ordered)


def sorted_rows(unsorted: Iterable[MeasureRow], by: SortKey) -> tuple[MeasureRow, ...]:
    """The highest first, unknown ones last; names ascending."""
    match by:
        case "delay":
            return tuple(sorted(unsorted, key=lambda row: _descending(row.delay)))
        case "cpu":
            return tuple(sorted(unsorted, key=lambda row: _descending(row.use)))
        case "drops":
            return tuple(sorted(unsorted, key=lambda row: _descending(row.drops)))
        case "packets":
            return tuple(sorted(unsorted, key=lambda row: _descending(_sum(row.traffic[:2]))))
        case "name":
            return tuple(sorted(unsorted, key=lambda row: row.name))


def host_line(measures: Measures) -> str:
    host = next((history for history in measures.histories if history.subject == HOST), None)
    if host is None:
        return "nothing is measured yet"
    values = ((series, _latest(host, series.name)) for series in HOST_SERIES)
    known = [f"{series.name} {value:.1f} {series.unit}" for series, value in values if value is not None]
    return ", ".join(known) or "nothing is measured yet"


def _row(history: History, trend: tuple[float | None, ...]) -> MeasureRow:
    delays = tuple(_latest(history, name) for name in _DELAYS)
    use = _sum(_latest(history, name) for name in _USES)
    drops, loss = _latest(history, "drops"), _latest(history, LOSS)
    traffic, pings = (tuple(_latest(history, name) for name in names) for names in (_TRAFFIC, PING_SERIES))
    return MeasureRow(history.name, delays, use, drops, trend, loss, traffic, pings)


def _sum(values: Iterable[float | None]) -> float | None:
    """None where a value is not known: the sum would be too small."""
    present = tuple(values)
    known = [value for value in present if value is not None]
    return sum(known) if len(known) == len(present) else None


def _descending(value: float | None) -> float:
    return inf if value is None else -value


def _latest(history: History, name: str) -> float | None:
    values = history.values.get(name, ())[-_LATEST:]
    return next((value for value in reversed(values) if value is not None), None)


def scaled(value: float, sign: str = "") -> str:
    """250000 as 250k. ``sign``: + for a difference."""
    for factor, unit, least in ((1e9, "G", 1e9), (1e6, "M", 1e6), (1e3, "k", 1e4)):
        if abs(value) >= least:
            return f"{value / factor:{sign}.4g}{unit}"
    return f"{value:{sign}.1f}"


BARS = "▁▂▃▄▅▆▇█"
UNKNOWN = " "


def sparkline(values: Sequence[float | None], width: int) -> str:
    """A bar stands for the highest of its values, and the lowest bar for 0; blank where none is known."""
    parts = min(width, len(values))
    bars = [_highest(values[part * len(values) // parts : (part + 1) * len(values) // parts]) for part in range(parts)]
    top = max((bar for bar in bars if bar is not None), default=0.0)
    return "".join(UNKNOWN if bar is None else BARS[round(bar / top * (len(BARS) - 1)) if top else 0] for bar in bars)


def _highest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
