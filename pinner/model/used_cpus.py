"""The CPUs that placed threads of guests use, whoever placed them."""

from collections.abc import Iterable, Iterator

from pinner.model.cpuset import CpuSet, union
from pinner.model.processes.process import Thread
from pinner.model.snapshot import Snapshot


def restricted(threads: Iterable[Thread], snapshot: Snapshot) -> CpuSet:
    """A thread that may not use every CPU of the host's baseline is placed."""
    whole = snapshot.baseline or snapshot.topology.online
    return union(thread.affinity for thread in threads if thread.affinity and not whole <= thread.affinity)


def vcpu_threads(snapshot: Snapshot) -> Iterator[Thread]:
    return (vcpu.thread for guest in snapshot.guests for vcpu in guest.vcpus if vcpu.thread is not None)


def vcpu_cpus(snapshot: Snapshot) -> CpuSet:
    return restricted(vcpu_threads(snapshot), snapshot)


def emulator_cpus(snapshot: Snapshot) -> CpuSet:
    return restricted((thread for guest in snapshot.guests for thread in guest.emulator.threads), snapshot)
