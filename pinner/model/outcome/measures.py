"""What the agent counts every few seconds, and the rates between two counts."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from types import MappingProxyType
from typing import Literal

from pinner.model.change import ThreadKey
from pinner.model.errors import Invalid
from pinner.model.kinds import TargetKind

ROWS: Mapping[int, int] = MappingProxyType({5: 720, 60: 1440, 900: 2976})
"""Steps in seconds, with the values kept of each: an hour, a day, 31 days."""
MAX_VALUES = max(ROWS.values())
"""Of one series in an answer."""

PING_SERIES = ("ping", "ping_loss", "ping_p99", "ping_worst")
"""A guest has them if the agent pings it, and it answers."""

PINGS_OF_P99 = 100
"""Of fewer values the 99th percentile is the highest one."""

LOSS = "loss"
"""It follows from other series, so no file has it."""

Better = Literal["lower", "higher", ""]
"""The direction of a better value; empty: neither."""

TREND = "delay_vcpu"

HOST = "host"
"""The subject of the host's measures; others are UUIDs of guests."""


@dataclass(frozen=True, slots=True)
class Series:
    """A measure that has a history."""

    name: str
    """Its name, such as ``delay_vcpu``."""
    unit: str
    about: str
    """The measure in words."""
    better: Better = "lower"
    """The direction of a better value; empty: neither."""


def _of_role(role: str, threads: str) -> tuple[Series, ...]:
    return (
        Series(f"delay_{role}", "ms/s", f"milliseconds in each second that {threads} waited for a CPU, all together"),
        Series(f"use_{role}", "%", f"CPU use of {threads}, all together; 100 is one CPU", ""),
    )


GUEST_SERIES = (
    *_of_role("vcpu", "the vCPU threads"),
    *_of_role("emulator", "QEMU's other threads"),
    *_of_role("iothread", "the iothreads"),
    *_of_role("vhost", "the vhost threads"),
    Series("drops", "packets/s", "packets that the guest's taps dropped in both directions"),
    Series(LOSS, "%", "share of the packets in both directions that the guest's taps dropped"),
    Series("packets_in", "packets/s", "packets that the guest received from its taps", "higher"),
    Series("packets_out", "packets/s", "packets that the guest sent to its taps", "higher"),
    Series("bits_in", "bits/s", "bits that the guest received from its taps", "higher"),
    Series("bits_out", "bits/s", "bits that the guest sent to its taps", "higher"),
    Series("ping", "ms", "mean round trip of a ping from the host; without an answer it counts as 1,000 ms"),
    Series("ping_loss", "%", "pings from the host without an answer"),
    Series("ping_p99", "ms", f"99th percentile of the last {PINGS_OF_P99} round trips"),
    Series("ping_worst", "ms", "longest round trip within 5 s; a longer step has the mean of these"),
)
"""Run delay and CPU use are from /proc/TID/schedstat, drops, packets and bits from the statistics of the taps."""

HOST_SERIES = (
    Series("use_host", "%", "CPU use of all CPUs, guests included; 100 is one CPU (/proc/stat)", ""),
    Series("pressure", "ms/s", "milliseconds in each second in which a thread waited for a CPU (/proc/pressure/cpu)"),
    Series("softnet_drops", "packets/s", "packets dropped before a CPU took them (/proc/net/softnet_stat)"),
    Series("squeezed", "1/s", "ends of a CPU's network budget with packets left (/proc/net/softnet_stat)"),
    Series("nic_drops", "packets/s", "packets that the physical NICs dropped or missed"),
    Series("throttled", "ms/s", "milliseconds in each second in which a limit throttled the guests (cpu.stat)"),
)


@dataclass(frozen=True, slots=True)
class ThreadCount:
    role: TargetKind
    run_ns: int
    wait_ns: int
    """Waiting for a CPU."""


@dataclass(frozen=True, slots=True)
class Pings:
    """Of one guest since it first answered one. The counts begin again with each QEMU."""

    ended: int
    """Answered, or out of time."""
    lost: int
    ms: float
    """Sum of all round trips; one without an answer counts as the longest, or a silent guest's mean would look good."""
    recent: tuple[float, ...]
    """The last PINGS_OF_P99 round trips, in ms, oldest first."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one subject at one moment."""

    subject: str
    """HOST, or a guest's UUID."""
    name: str
    at: float
    """Seconds of a clock that never jumps."""
    threads: Mapping[ThreadKey, ThreadCount]
    totals: Mapping[str, Mapping[str, float]]
    """Series to counters by source (a tap, a NIC, a CPU), each from its own start."""
    pings: Pings | None = None
    """None for the host, and for a guest that is not pinged or does not answer."""


Rates = Mapping[str, float | None]
"""By series; None: not known."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Over one interval."""

    subject: str
    name: str
    rates: Rates


@dataclass(frozen=True, slots=True)
class History:
    """One subject's kept values, at equal steps."""

    subject: str
    """HOST, or a guest's UUID."""
    name: str
    """The guest's; empty for the host, and a guest that does not run."""
    begin: datetime
    """End of the first step."""
    step: int
    values: Mapping[str, tuple[float | None, ...]]
    """Series to values, oldest first; null: not measured. A guest that was never pinged has no series of pings."""


@dataclass(frozen=True, slots=True)
class Span:
    begin: datetime | None = None
    """None: an hour before the end."""
    end: datetime | None = None
    """None: now."""
    step: int | None = None
    """Seconds (of ROWS); None: the finest step that reaches back to the begin."""


@dataclass(frozen=True, slots=True)
class Measures:
    """The histories of a host's measures and of its guests' measures."""

    host: str
    step: int
    guest_series: tuple[Series, ...]
    """Those that were asked for, or all."""
    host_series: tuple[Series, ...]
    """Those that were asked for, or all."""
    histories: tuple[History, ...]
    """The host's, then each guest's."""


def series_of(subject: str, names: Collection[str] = ()) -> tuple[Series, ...]:
    kept = HOST_SERIES if subject == HOST else GUEST_SERIES
    return tuple(series for series in kept if series.name in names) if names else kept


def require_series(names: Collection[str], known: Iterable[Series] = (*GUEST_SERIES, *HOST_SERIES)) -> None:
    """Raises Invalid for a name that no ``known`` series has."""
    allowed = tuple(series.name for series in known)
    for name in names:
        if name not in allowed:
            raise Invalid("series", name, f"one of {', '.join(allowed)}")


def measured(before: Counts, after: Counts) -> Measured:
    """A new thread counts from its start; an ended one is left out, and so is a source whose counter fell (a reset). A
    series without a source is not known."""
    seconds = after.at - before.at
    rates: dict[str, float | None] = {series.name: None for series in series_of(after.subject)}
    if seconds <= 0:
        return Measured(after.subject, after.name, rates)
    for name, sources in after.totals.items():
        earlier = before.totals.get(name, {})
        grown = [now - earlier[source] for source, now in sources.items() if now >= earlier.get(source, inf)]
        rates[name] = sum(grown) / seconds if grown else None
    if after.subject != HOST:
        rates |= _times(before, after, seconds) | _ping_rates(before.pings, after.pings)
    return Measured(after.subject, after.name, rates)


def _times(before: Counts, after: Counts, seconds: float) -> dict[str, float]:
    """Run delay in ms/s and CPU use in per cent by role; 0 without threads."""
    times = {series.name: 0.0 for series in GUEST_SERIES if series.name.startswith(("delay_", "use_"))}
    for key, now in after.threads.items():
        then = before.threads.get(key, ThreadCount(now.role, 0, 0))
        times[f"delay_{now.role}"] += max(0, now.wait_ns - then.wait_ns) / 1e6 / seconds
        times[f"use_{now.role}"] += max(0, now.run_ns - then.run_ns) / 1e7 / seconds
    return times


def _ping_rates(before: Pings | None, after: Pings | None) -> dict[str, float]:
    if before is None or after is None or after.ended <= before.ended:
        return {}
    ended = after.ended - before.ended
    rates = {
        "ping": (after.ms - before.ms) / ended,
        "ping_loss": 100 * (after.lost - before.lost) / ended,
        "ping_worst": max(after.recent[-ended:]),
    }
    if len(after.recent) == PINGS_OF_P99:
        rates["ping_p99"] = sorted(after.recent)[PINGS_OF_P99 * 99 // 100 - 1]
    return rates


def loss_share(drops: float | None, packets_in: float | None, packets_out: float | None) -> float | None:
    """Per cent; 0 where no packet was to pass."""
    if drops is None or packets_in is None or packets_out is None:
        return None
    offered = drops + packets_in + packets_out
    return 100 * drops / offered if offered else 0.0


def finest(begin: datetime, now: datetime) -> int:
    return next((step for step, rows in ROWS.items() if now - begin <= timedelta(seconds=step * rows)), max(ROWS))
