"""The windows of a probe: what was measured in each, and which of them count."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import ceil, floor
from statistics import fmean

from pinner.model.cpuset import CpuSet
from pinner.model.event import HostEvent
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Topology
from pinner.model.outcome.outcome import (
    CARRIED,
    MEASURES,
    Arm,
    Sample,
    Window,
)
from pinner.model.run.journal import Run
from pinner.model.snapshot import Snapshot
from pinner.outcome.samples import between

SHIFT_PERCENT, SHIFT_FACTOR = 50.0, 2.0
"""The load of the control shifted where its halves of a window differ by so much of one CPU, and by this factor."""

_EVENTS = ("guest-reset", "guest-paused", "guest-started", "guest-stopped")
"""A window with one of these does not count. Its snapshots do not show a restart during the switch before it, while the
guest boots in the window."""

JUMP_SECONDS = 1.0
"""The host's clock may differ by so much from the time that passed."""


def window(arm: Arm, known: Iterable[Sample], begin: datetime, end: datetime, step: int) -> Window:
    """Only measures that are known in all of its steps."""
    inside = between(known, begin, end, step)
    ends = range(ceil(begin.timestamp() / step) + 1, floor(end.timestamp() / step) + 1)
    passed = [at * step - begin.timestamp() for at in ends]
    values = _means([sample.values for sample in inside], passed)
    control = _means([sample.control for sample in inside], passed)
    bits = {
        name: {guest: fmean(sample.bits[name][guest] for sample in inside) for guest in inside[0].bits.get(name, ())}
        for name in CARRIED.values()
        if name in values
    }
    return Window(arm, values, control, "" if values else "no measure is known in all steps", bits)


def disturbed(before: Snapshot, after: Snapshot) -> str:
    """Why the time between two snapshots does not count; empty: it counts."""
    earlier = {guest.uuid: guest for guest in before.guests}
    later = {guest.uuid: guest for guest in after.guests}
    for uuid, guest in earlier.items():
        if uuid not in later:
            return f"guest {guest.name} went"
        if why := _changed(guest, later[uuid]):
            return why
    came = next((f"guest {guest.name} came" for uuid, guest in later.items() if uuid not in earlier), "")
    return came or _changed_cpus(before.topology, after.topology)


def reported(events: Iterable[HostEvent], guests: Mapping[str, str], begin: datetime, end: datetime) -> str:
    """What no snapshot may show, in words. ``guests``: names by UUID. Lost events may be of any time."""
    for event in events:
        if event.kind == "lost":
            return f"events of the host were lost: {event.detail}" if event.detail else "events of the host were lost"
        if event.kind in _EVENTS and begin <= event.at <= end:
            return f"guest {guests.get(event.subject, event.subject)} was {event.kind.removeprefix('guest-')}"
    return ""


def shifted(uses: Sequence[float]) -> str:
    """A large shift of the control's CPU use within a window, in words. Only halves of one window are compared: a rule
    over all windows could leave out those of one placement."""
    half = len(uses) // 2
    if not half:
        return ""
    first, second = fmean(uses[:half]), fmean(uses[-half:])
    low, high = sorted((first, second))
    if high - low < SHIFT_PERCENT or high < SHIFT_FACTOR * low:
        return ""
    return f"the load of the guests that the plan does not change went from {first:.0f} % to {second:.0f} % of a CPU"


def crossed(runs: Iterable[Run], mark: str, begin: datetime, end: datetime) -> str:
    for run in runs:
        over = run.ended_at is not None and run.ended_at < begin
        if run.origin != mark and run.started_at <= end and not over:
            return f"run {run.id} changed the host"
    return ""


def jumped(clock_seconds: float, passed_seconds: float) -> str:
    difference = clock_seconds - passed_seconds
    return f"the clock jumped by {difference:+.0f} s" if abs(difference) > JUMP_SECONDS else ""


def _changed_cpus(before: Topology, after: Topology) -> str:
    earlier = {cpu.id: cpu for cpu in before.cpus}
    later = {cpu.id: cpu for cpu in after.cpus}
    both = sorted(earlier.keys() & later.keys())
    if switched := [cpu_id for cpu_id in both if earlier[cpu_id].online != later[cpu_id].online]:
        return f"CPUs {CpuSet.of(switched)} went offline or came online"
    if earlier.keys() != later.keys():
        return f"CPUs {CpuSet.of(earlier.keys() ^ later.keys())} were plugged in or out"
    if changed := [cpu_id for cpu_id in both if earlier[cpu_id].governor != later[cpu_id].governor]:
        was, now = earlier[changed[0]].governor, later[changed[0]].governor
        return f"the governor of CPUs {CpuSet.of(changed)} was {was} and is {now}"
    return ""


def _means(steps_values: Sequence[Mapping[str, float]], passed: Sequence[float]) -> dict[str, float]:
    """``passed`` are the seconds from the begin of the window to the end of each of its steps."""
    means = {}
    for measure in MEASURES:
        values = [step_values[measure.name] for step_values in steps_values if measure.name in step_values]
        steps = sum(seconds >= measure.reach_seconds for seconds in passed)
        if steps and len(values) == steps:
            means[measure.name] = fmean(values)
    return means


def _changed(before: Guest, after: Guest) -> str:
    if before.leaving or after.leaving or before.is_migrating or after.is_migrating:
        return f"guest {after.name} migrates"
    if before.pid != after.pid:
        return f"guest {after.name} was restarted"
    if before.state != after.state:
        return f"guest {after.name} was {before.state} and is {after.state}"
    if before.plugged != after.plugged:
        return f"guest {after.name} has other vCPUs"
    for name in sorted(before.quotas.keys() | after.quotas.keys()):
        if before.quotas.get(name) != after.quotas.get(name):
            return f"guest {after.name} has another {name}"
    counters = {tap.name: (tap.rx_packets, tap.tx_packets, tap.rx_drops, tap.tx_drops) for tap in before.taps}
    if counters.keys() != {tap.name for tap in after.taps}:
        return f"guest {after.name} has other taps"
    for tap in after.taps:
        now = (tap.rx_packets, tap.tx_packets, tap.rx_drops, tap.tx_drops)
        if any(later < earlier for earlier, later in zip(counters[tap.name], now, strict=True)):
            return f"a counter of the tap {tap.name} of guest {after.name} was reset"
    return ""
