"""The objective by which plans are compared.

Lower is better; 0 means that no threads compete. The unit of every part is one CPU: the load of the threads that
compete, if every thread spreads evenly over the online CPUs that it may use. A thread of weight w that may use m CPUs
puts w/m on each of them. This gives three densities for every CPU c:

    v(c)  vCPUs, each of weight 1 (it may want a whole CPU at any moment)
    e(c)  QEMU: each guest's emulator threads together, each iothread and each vhost or kvm thread have weight 1
    h(c)  threads of busy host processes, each with its measured load (100 % of one CPU is weight 1)

    q(c)  QEMU's threads of e(c), each with its measured load

and these parts, which add up to the total:

    vcpu_vs_host      sum over c of min(v, 1) * h      host work that interrupts vCPUs
    vcpu_vs_emulator  sum over c of min(v, 1) * e      QEMU's I/O work that interrupts vCPUs
    emulator_vs_host  sum over c of min(e, 1) * h      host work that interrupts QEMU's I/O work
    overcommit        sum over c of max(v - 1, 0)      vCPUs beyond one a CPU
    overload          sum over c of max(h + q - 1, 0)  load of the host and of QEMU's own threads beyond one CPU
    remote_nodes      sum over vCPUs of the chance that its CPU and a page of its guest lie on different nodes
"""

from collections.abc import Iterator, Mapping

from pinner.model.cpuset import CpuSet
from pinner.model.guest import Guest
from pinner.model.plan import Score
from pinner.model.process import Thread
from pinner.model.snapshot import Snapshot
from pinner.planning.demand import qemus_own_load, qemus_own_threads
from pinner.planning.memory import Spread, remote_vcpus

_DIGITS = 6
"""Enough digits to compare scores, and so few that the order of additions makes no difference."""


def score(snapshot: Snapshot, busy_threshold: float, planned: Mapping[int, CpuSet]) -> Score:
    """The score of a host with the affinities of ``planned`` (thread id to CPUs), and current ones for other threads.

    ``busy_threshold`` is in per cent of one CPU. The time grows with the number of threads, and with the CPUs of
    each distinct affinity.
    """
    online = snapshot.topology.online

    def mask(thread: Thread) -> CpuSet:
        return planned.get(thread.tid, thread.affinity)

    vcpus = _density(((mask(thread), 1.0) for guest in snapshot.guests for thread in _vcpus(guest)), online)
    beside = _density(
        ((mask(thread), weight) for guest in snapshot.guests for thread, weight in _beside(guest)), online
    )
    host = _density(((mask(thread), load) for thread, load in _busy(snapshot, busy_threshold)), online)
    loads = qemus_own_load(snapshot, snapshot.guests)
    qemu = _density(
        (
            (mask(thread), loads[thread.tid])
            for guest in snapshot.guests
            for thread in qemus_own_threads(guest)
            if thread.tid in loads
        ),
        online,
    )
    parts = {
        "vcpu_vs_host": _clash(vcpus, host),
        "vcpu_vs_emulator": _clash(vcpus, beside),
        "emulator_vs_host": _clash(beside, host),
        "overcommit": sum(max(count - 1.0, 0.0) for count in vcpus.values()),
        "overload": sum(max(host[cpu] + qemu[cpu] - 1.0, 0.0) for cpu in online),
        "remote_nodes": _remote(snapshot, planned),
    }
    rounded = {name: round(part, _DIGITS) for name, part in parts.items()}
    return Score(total=round(sum(rounded.values()), _DIGITS), parts=rounded)


def _vcpus(guest: Guest) -> Iterator[Thread]:
    return (vcpu.thread for vcpu in guest.vcpus if vcpu.thread)


def _beside(guest: Guest) -> Iterator[tuple[Thread, float]]:
    for thread in guest.emulator.threads:
        yield thread, 1.0 / len(guest.emulator.threads)
    for iothread in guest.iothreads:
        if iothread.thread:
            yield iothread.thread, 1.0
    for vhost in guest.vhost_threads:
        yield vhost, 1.0


def _busy(snapshot: Snapshot, threshold: float) -> Iterator[tuple[Thread, float]]:
    """The movable threads of the host's busy processes, each with its load in CPUs."""
    for process in snapshot.processes:
        if process.load > threshold and process.immovable_reason in ("", "restricted"):
            for thread in process.threads:
                if thread.immovable_reason in ("", "restricted"):
                    yield thread, thread.load / 100.0


def _clash(disturbed: Mapping[int, float], disturbing: Mapping[int, float]) -> float:
    return sum(min(disturbed.get(cpu, 0.0), 1.0) * weight for cpu, weight in disturbing.items())


def _density(threads: Iterator[tuple[CpuSet, float]], online: CpuSet) -> dict[int, float]:
    """The weight that the threads put on each CPU. They share few distinct affinities: each of these is spread once."""
    by_mask: dict[CpuSet, float] = {}
    for mask, weight in threads:
        by_mask[mask] = by_mask.get(mask, 0.0) + weight
    density = dict.fromkeys(online, 0.0)
    for mask, weight in by_mask.items():
        possible = mask & online
        share = weight / max(len(possible), 1)
        for cpu in possible:
            density[cpu] += share
    return density


def _remote(snapshot: Snapshot, planned: Mapping[int, CpuSet]) -> float:
    spread = Spread(snapshot.topology)
    return sum(
        remote_vcpus(
            guest.memory_per_node,
            (planned.get(thread.tid, thread.affinity) for thread in _vcpus(guest)),
            spread,
        )[0]
        for guest in snapshot.guests
        if any(guest.memory_per_node.values())
    )
