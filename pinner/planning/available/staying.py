"""The CPUs of vCPUs that a plan does not move."""

from collections.abc import Container

from pinner.model.change import TargetKey
from pinner.model.cpuset import CpuSet
from pinner.model.snapshot import Snapshot
from pinner.model.used_cpus import restricted


def staying(snapshot: Snapshot, moved: Container[TargetKey]) -> CpuSet:
    threads = (
        vcpu.thread
        for guest in snapshot.guests
        for vcpu in guest.vcpus
        if vcpu.thread is not None and guest.vcpu_targets[vcpu.id].key not in moved
    )
    return restricted(threads, snapshot)
