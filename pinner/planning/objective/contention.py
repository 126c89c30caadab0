"""Threads that disturb each other, in CPUs, if every thread spreads evenly over the online CPUs that it may use.

A thread of weight w that may use m CPUs puts w/m on each of them. This gives densities for every CPU c:

    v(c)  vCPUs, each of weight 1 (it may want a whole CPU at any moment)
    e(c)  QEMU: each guest's emulator threads together, each iothread and each vhost or kvm thread have weight 1
    h(c)  threads of busy host processes, each with its measured load (100 % of one CPU is weight 1)

and the demands d(c) of the three roles: the measured load, larger where the threads had to wait for a CPU.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.processes.process import Thread
from pinner.model.snapshot import Snapshot
from pinner.planning.available.demand import qemus_own_threads

_MOVABLE = ("", "restricted")

Weighted = tuple[tuple[Thread, float], ...]
"""Threads with their weights in CPUs."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """The threads of a host that can disturb each other."""

    online: CpuSet
    emulators: Weighted
    host: Weighted
    demands: Mapping[str, Weighted]
    """The threads of each role with the CPUs that they want, by the name of the role's term."""

    @classmethod
    def of(cls, snapshot: Snapshot, busy_threshold: float) -> "Crowd":
        """Read a snapshot; ``busy_threshold`` is in per cent of one CPU."""
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
        """The terms with the affinities of ``planned`` (thread id to CPUs), and current ones for other threads.
        ``vcpus`` has the bits of these affinities for every vCPU."""
        on_vcpus = self._density(Counter(vcpus))
        beside, host = (self._density(_by_mask(each, planned)) for each in (self.emulators, self.host))
        demands = {name: self._density(_by_mask(threads, planned)) for name, threads in self.demands.items()}
        return {
            **_overloads(demands),
            "vcpu_vs_host": _clash(on_vcpus, host),
            "vcpu_vs_emulator": _clash(on_vcpus, beside),
            "emulator_vs_host": _clash(beside, host),
            "overcommit": sum(count - 1.0 for count in on_vcpus.values() if count > 1.0),
        }

    def _density(self, by_mask: Mapping[int, float]) -> dict[int, float]:
        """The weight on each CPU, from the weight of each distinct affinity by its bits."""
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
    """The weight of each affinity by its bits: threads share few affinities, and each of these is spread once."""
    found: dict[int, float] = {}
    for thread, weight in threads:
        mask = planned.get(thread.tid, thread.affinity).bits
        found[mask] = found.get(mask, 0.0) + weight
    return found


def demand(thread: Thread) -> float:
    """The CPUs that the thread wants: its measured load, and its waiting for a CPU beside that, up to one CPU.

    A thread that waits as long as it runs wants twice its load. ``delay_ns`` and ``run_ns`` count since the thread
    started; without them the measured load counts alone.
    """
    load = thread.load / 100
    if not thread.run_ns or not thread.delay_ns:
        return load
    return max(load, min(1.0, load * (1 + thread.delay_ns / thread.run_ns)))


def _demands(snapshot: Snapshot) -> dict[int, float]:
    """The demand of each thread of a guest that has load, by thread id. A snapshot has it with the processes."""
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
    """The movable threads of the host's busy processes."""
    for process in snapshot.processes:
        if process.load > threshold and process.immovable_reason in _MOVABLE:
            yield from (thread for thread in process.threads if thread.immovable_reason in _MOVABLE)


def _overloads(demands: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """The demand beyond one CPU for each CPU, divided among the roles in proportion to their demand there."""
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
    return sum(min(disturbed[cpu], 1.0) * weight for cpu, weight in disturbing.items() if cpu in disturbed)
