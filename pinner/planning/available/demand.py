"""The measured load that the sets of CPUs have to carry."""

from collections.abc import Iterable
from dataclasses import dataclass

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.processes.process import Thread
from pinner.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Demand:
    """The load, in CPUs, of the threads that automatic sets are for, and the present affinities of these threads."""

    housekeeping: float = 0.0
    emulator: float = 0.0
    housekeeping_now: frozenset[CpuSet] = frozenset()
    emulator_now: frozenset[CpuSet] = frozenset()


NO_DEMAND = Demand()


def qemus_own_threads(guest: Guest) -> list[Thread]:
    iothreads = [iothread.thread for iothread in guest.iothreads if iothread.thread]
    return [*guest.emulator.threads, *iothreads, *guest.vhost_threads]


def qemus_own_load(snapshot: Snapshot, guests: Iterable[Guest]) -> dict[int, float]:
    """In CPUs, by thread id: of the guests' threads among the processes."""
    loads = {
        thread.tid: thread.load / 100
        for process in snapshot.processes
        if process.load and process.immovable_reason == "guest"
        for thread in process.threads
        if thread.load
    }
    own = {thread.tid for guest in guests for thread in qemus_own_threads(guest)} if loads else ()
    return {tid: load for tid, load in loads.items() if tid in own}
