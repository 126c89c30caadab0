"""Which threads ran while others waited for their CPUs, from the scheduler's events."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from pinner.model.processes.blame import Migration, SchedEvent, Switch, Wakeup

Waits = Mapping[tuple[int, int], float]
"""Seconds by the id of the waiting thread and of the one that ran."""


def waits(events: Iterable[SchedEvent], threads: Collection[int], end: float) -> Waits:
    """The seconds that each of ``threads`` waited while another thread ran on the CPU of its queue, up to ``end``.

    A thread waits from its wakeup, or from the moment when it was preempted, until it runs. The kernel moves a waiting
    thread to another queue at times. Before the first switch of a CPU nobody knows who runs there. ``events`` are in
    the order of their times.
    """
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
    """A CPU while the events are read."""

    runs: int | None = None
    """The thread that runs; None until the first switch."""
    since: float = 0.0
    """Until when the waiting of its queue has been counted."""
    queue: dict[int, float] = field(default_factory=dict)
    """The threads of interest that wait, with the beginning of their waiting."""


class _Queues:
    """The threads of interest in the queues of the CPUs."""

    def __init__(self, threads: Collection[int]) -> None:
        self.found: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._threads = threads
        self._cpus: defaultdict[int, _Cpu] = defaultdict(_Cpu)
        self._place: dict[int, int] = {}
        """The CPU of each thread that waits."""

    def switch(self, event: Switch) -> None:
        """The CPU runs another thread from now on."""
        cpu = self._cpus[event.cpu]
        cpu.runs = event.before
        self._count(cpu, event.at)
        self._leave(event.after, event.at)
        cpu.runs = event.after
        if event.before in self._threads and event.was_runnable:
            self._enter(event.before, event.cpu, event.at)

    def wake(self, thread: int, cpu: int, now: float) -> None:
        """The thread waits from now on, unless it runs or waits there already."""
        if thread in self._threads and self._cpus[cpu].runs != thread and self._place.get(thread) != cpu:
            self._enter(thread, cpu, now)

    def migrate(self, thread: int, cpu: int, now: float) -> None:
        """The thread waits on another CPU, if it waits."""
        if thread in self._place:
            self._enter(thread, cpu, now)

    def count_all(self, now: float) -> None:
        """Count what is still waiting."""
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
