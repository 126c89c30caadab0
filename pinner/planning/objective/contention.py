"""Threads that disturb each other, in CPUs, if every thread spreads evenly over its online CPUs (docs/objective.md)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import fsum

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Thread
from pinner.model.snapshot import Snapshot
from pinner.planning.available.allocatable_cpus import qemus_own_threads

_MOVABLE = ("", "restricted")

Weighted = tuple[tuple[Thread, float], ...]
"""Threads with their weights in CPUs."""


@dataclass(frozen=True, slots=True)
class Crowd:
    online: CpuSet
    emulators: Weighted
    host: Weighted
    demands: Mapping[str, Weighted]
    """By the role's term."""

    @classmethod
    def of(cls, snapshot: Snapshot, busy_threshold: float) -> "Crowd":
        """``busy_threshold`` is in per cent of one CPU."""
        guests, busy, measured = snapshot.guests, tuple(_busy(snapshot, busy_threshold)), _demands(snapshot)
        # Most of the threads of guests are listed only to find those that have load.
        of_guests = guests if measured else ()
        vcpus = (vcpu.thread for guest in of_guests for vcpu in guest.vcpus if vcpu.thread)
        qemu = (thread for guest in of_guests for thread in qemus_own_threads(guest))
        return cls(
            online=snapshot.topology.online,
            emulators=tuple([each for guest in guests for each in _beside(guest)]),
            host=tuple((thread, thread.load / 100) for thread in busy),
            demands={
                "host_overload": tuple((thread, demand(thread)) for thread in busy),
                "qemu_overload": tuple((each, measured[each.tid]) for each in qemu if each.tid in measured),
                "vcpu_overload": tuple((each, measured[each.tid]) for each in vcpus if each.tid in measured),
            },
        )

    def terms(self, planned: Mapping[int, CpuSet], vcpus: Iterable[int]) -> dict[str, float]:
        """``planned`` by thread id; ``vcpus``: the bits of an affinity for every vCPU."""
        on_vcpus = self._density(Counter(vcpus))
        beside, host = (self._density(_by_mask(each, planned)) for each in (self.emulators, self.host))
        demands = {name: self._density(_by_mask(threads, planned)) for name, threads in self.demands.items()}
        return {
            **_overloads(demands),
            "vcpu_vs_host": _clash(on_vcpus, host),
            "vcpu_vs_emulator": _clash(on_vcpus, beside),
            "emulator_vs_host": _clash(beside, host),
            "overcommit": fsum(count - 1.0 for count in on_vcpus.values() if count > 1.0),
        }

    def _density(self, by_mask: Mapping[int, float]) -> dict[int, float]:
        density: dict[int, float] = {}
        online = self.online.bits
        for mask, weight in by_mask.items():
            possible = mask & online
            count = possible.bit_count()
            # Most vCPUs have one CPU each, and need no list of CPUs.
            for cpu in CpuSet(possible) if count != 1 else (possible.bit_length() - 1,):
                density[cpu] = density.get(cpu, 0.0) + weight / count
        return density


def _by_mask(threads: Weighted, planned: Mapping[int, CpuSet]) -> dict[int, float]:
    """Threads share few affinities, and each of these is spread once."""
    found: dict[int, float] = {}
    for thread, weight in threads:
        mask = planned.get(thread.tid, thread.affinity).bits
        found[mask] = found.get(mask, 0.0) + weight
    return found


def demand(thread: Thread) -> float:
    """In CPUs: load x (1 + delay / run), up to one. Both times count since the thread started."""
    load = thread.load / 100
    if not thread.run_ns or not thread.delay_ns:
        return load
    return max(load, min(1.0, load * (1 + thread.delay_ns / thread.run_ns)))


def _demands(snapshot: Snapshot) -> dict[int, float]:
    """By thread id. A snapshot has the threads of guests with load among the processes."""
    return {
        thread.tid: demand(thread)
        for process in snapshot.processes
        if process.load and process.immovable_reason == "guest"
        for thread in process.threads
        if thread.load
    }


def _beside(guest: Guest) -> list[tuple[Thread, float]]:
    emulators = guest.emulator.threads
    found = [(thread, 1.0 / len(emulators)) for thread in emulators]
    found += [(iothread.thread, 1.0) for iothread in guest.iothreads if iothread.thread]
    return found + [(vhost, 1.0) for vhost in guest.vhost_threads]


def _busy(snapshot: Snapshot, threshold: float) -> Iterator[Thread]:
    for process in snapshot.processes:
        if process.load > threshold and process.immovable_reason in _MOVABLE:
            yield from (thread for thread in process.threads if thread.immovable_reason in _MOVABLE)


def _overloads(demands: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    found, totals = dict.fromkeys(demands, 0.0), dict[int, float]()
    for load in demands.values():
        for cpu, part in load.items():
            totals[cpu] = totals.get(cpu, 0.0) + part
    for cpu, total in totals.items():
        if total > 1.0:
            for name, load in demands.items():
                found[name] += (total - 1.0) * load.get(cpu, 0.0) / total
    return found


def _clash(disturbed: Mapping[int, float], disturbing: Mapping[int, float]) -> float:
    return fsum(min(disturbed[cpu], 1.0) * weight for cpu, weight in disturbing.items() if cpu in disturbed)
