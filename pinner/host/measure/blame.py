"""Says who delays a guest on this machine."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from pinner.host.kernel import files, procfs, tracefs
from pinner.model.cpuset import union
from pinner.model.errors import Gone
from pinner.model.guest.guest import Guest
from pinner.model.kinds import TargetKind
from pinner.model.outcome.blame import Blame, Culprit, Migration, SchedEvent, Switch, Waited, Wakeup

Waits = Mapping[tuple[int, int], float]
"""Seconds by the waiting thread and the one that ran."""
MOST = 50


def blame(
    root: Path, guest: Guest, guests: Iterable[Guest], seconds: float, sleep: Callable[[float], None] = time.sleep
) -> Blame:
    """Raises NotPermitted, Busy, Gone."""
    roles = _roles(guest)
    if not roles:
        raise Gone(f"guest {guest.name}")
    cpus = union(thread.affinity for threads in guest.threads_by_target.values() for thread in threads)
    names: dict[int, str] = {}
    with tracefs.record(root, cpus, seconds, sleep) as trace:
        waits_of = waits(_named(trace.events, names), roles.keys(), trace.end)
    by_role: defaultdict[TargetKind, float] = defaultdict(float)
    for (thread, _), seconds_waited in waits_of.items():
        by_role[roles[thread]] += seconds_waited * 1000
    waited = tuple(Waited(role, round(by_role.get(role, 0.0), 3)) for role in dict.fromkeys(roles.values()))
    return Blame(guest.name, round(trace.seconds, 3), waited, _culprits(root, waits_of, guests, names), trace.lost)


def _named(events: Iterable[SchedEvent], names: dict[int, str]) -> Iterator[SchedEvent]:
    for event in events:
        if isinstance(event, Switch):
            names[event.after] = event.name
        yield event


def _roles(guest: Guest) -> dict[int, TargetKind]:
    return {thread.tid: target.kind for target, threads in guest.threads_by_target.items() for thread in threads}


def _culprits(
    root: Path, waits_by_pair: Waits, guests: Iterable[Guest], names: Mapping[int, str]
) -> tuple[Culprit, ...]:
    seconds: defaultdict[int, float] = defaultdict(float)
    for (_, ran), waited in waits_by_pair.items():
        seconds[ran] += waited
    owners = {tid: guest.name for guest in guests for tid in _roles(guest)}
    total = sum(seconds.values())
    worst = sorted((tid for tid in seconds if seconds[tid] > 0), key=lambda tid: (-seconds[tid], tid))[:MOST]
    return tuple(_culprit(root, tid, seconds[tid], total, owners.get(tid, ""), names.get(tid, "")) for tid in worst)


def _culprit(root: Path, tid: int, seconds: float, total: float, guest: str, traced: str) -> Culprit:
    share, ms = round(seconds / total, 4), round(seconds * 1000, 3)
    if not tid:
        return Culprit(0, "idle", 0, "", "", ms, share)
    try:
        name = procfs.parse_stat(files.read(f"{root}/proc/{tid}/stat")).name
        status = files.decode(files.read(f"{root}/proc/{tid}/status"))
        pid = int(next(line for line in status.splitlines() if line.startswith("Tgid:")).split()[1])
        unit = procfs.parse_unit(files.read(f"{root}/proc/{tid}/cgroup"))
    except (OSError, ValueError, IndexError, StopIteration):
        return Culprit(tid, traced, 0, "", guest, ms, share)
    return Culprit(tid, name, pid, unit, guest, ms, share)


def waits(events: Iterable[SchedEvent], threads: Collection[int], end: float) -> Waits:
    """Seconds up to ``end``. A thread waits from its wakeup or preemption until it runs; the kernel may move it to
    another queue. Nobody knows who runs before a CPU's first switch."""
    queues = _Queues(threads)
    for event in events:
        match event:
            case Switch():
                queues.switch(event)
            case Wakeup(at, thread, cpu):
                queues.wake(thread, cpu, at)
            case Migration(at, thread, cpu):
                queues.migrate(thread, cpu, at)
            case _:
                assert_never(event)
    queues.count_all(end)
    return dict(queues.found)


@dataclass(slots=True)
class _Cpu:
    runs: int | None = None
    since: float = 0.0
    """Until then the waiting in its queue is counted."""
    queue: dict[int, float] = field(default_factory=dict)
    """The waiting threads of interest, and since when."""


class _Queues:
    def __init__(self, threads: Collection[int]) -> None:
        self.found: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._threads = threads
        self._cpus: defaultdict[int, _Cpu] = defaultdict(_Cpu)
        self._place: dict[int, int] = {}

    def switch(self, event: Switch) -> None:
        cpu = self._cpus[event.cpu]
        cpu.runs = event.before
        self._count(cpu, event.at)
        self._leave(event.after, event.at)
        cpu.runs = event.after
        if event.before in self._threads and event.was_runnable:
            self._enter(event.before, event.cpu, event.at)

    def wake(self, thread: int, cpu: int, now: float) -> None:
        if thread in self._threads and self._cpus[cpu].runs != thread and self._place.get(thread) != cpu:
            self._enter(thread, cpu, now)

    def migrate(self, thread: int, cpu: int, now: float) -> None:
        if thread in self._place:
            self._enter(thread, cpu, now)

    def count_all(self, now: float) -> None:
        for cpu in self._cpus.values():
            self._count(cpu, now)

    def _count(self, cpu: _Cpu, now: float) -> None:
        if cpu.runs is not None:
            for thread, begin in cpu.queue.items():
                self.found[thread, cpu.runs] += max(0.0, now - max(begin, cpu.since))
        cpu.since = now

    def _leave(self, thread: int, now: float) -> None:
        if (number := self._place.pop(thread, None)) is not None:
            self._count(self._cpus[number], now)
            del self._cpus[number].queue[thread]

    def _enter(self, thread: int, number: int, now: float) -> None:
        self._leave(thread, now)
        self._count(self._cpus[number], now)
        self._cpus[number].queue[thread] = now
        self._place[thread] = number
