"""Nova's CPU sets as they should be on a host."""

from dataclasses import replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.nova import NovaSets
from pinner.model.machine.boot import isolated_cpus
from pinner.model.machine.topology import Topology
from pinner.model.snapshot import OvsDpdk, Snapshot

FEW_CORES, FEW_PERCENT = 2, 5.0


def right_sets(snapshot: Snapshot, vcpu: CpuSet) -> NovaSets:
    """The host's sets without absent, offline and Open vSwitch's CPUs, without split cores where that leaves CPUs, and
    only balanced CPUs for floating guests: where fewer than two, those of a plan, ``vcpu``, that no vCPU has alone."""
    topology, ovs = snapshot.topology, snapshot.ovs or OvsDpdk()
    alone = topology.isolated | isolated_cpus(topology) | snapshot.dedicated
    dedicated = (snapshot.dedicated & (topology.online | topology.offline)) - ovs.cpus - ovs.masks.lcore
    shared = (snapshot.shared & topology.online) - alone - ovs.cpus
    split = union(split_cores(replace(snapshot, dedicated=dedicated, shared=shared)))
    pinned = union(guest.cpus for guest in snapshot.nova_owns().guests)
    is_possible = all(cpus - split for cpus in (dedicated, shared) if cpus) and not pinned & dedicated & split
    if is_possible:
        dedicated, shared = dedicated - split, shared - split
    guests = snapshot.guests
    own = union(mask - guest.pooled for guest in guests for mask in guest.vcpu_affinities.values() if len(mask) == 1)
    return NovaSets(dedicated, shared if len(shared) > 1 else vcpu - own)


def split_cores(snapshot: Snapshot) -> set[CpuSet]:
    """The cores with several owners, where Nova has a set."""
    if not snapshot.shared | snapshot.dedicated:
        return set()
    return {core for core in snapshot.topology.online_cores.values() if len(core_owners(snapshot, core)) > 1}


def core_owners(snapshot: Snapshot, core: CpuSet) -> list[str]:
    """Isolated CPUs that are in no set run nothing."""
    sets = snapshot.shared | snapshot.dedicated
    switch = (snapshot.ovs.cpus if snapshot.ovs else CpuSet()) - sets
    host = (snapshot.baseline or snapshot.topology.online) - sets - switch - snapshot.topology.isolated
    owners = (
        ("the host", host),
        ("Open vSwitch", switch),
        ("cpu_shared_set", snapshot.shared),
        ("cpu_dedicated_set", snapshot.dedicated),
    )
    return [owner for owner, cpus in owners if core & cpus]


def are_few(topology: Topology, others: CpuSet) -> bool:
    """Whether the host has too few CPUs. Red Hat's layout for DPDK leaves a core of each of two nodes."""
    cores = {topology.online_cores[cpu] for cpu in others}
    return len(cores) < FEW_CORES or 100 * len(others) < FEW_PERCENT * len(topology.online)
