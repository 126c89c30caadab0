"""Nova's CPU sets against kernel arguments, CPUAffinity and Open vSwitch. Pure. `pinner nova check` finds what keeps
Nova from starting."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from pinner.checks.common import (
    NUMA_LOCAL,
    cpu_argument,
    floats_over,
    has_pins_alone,
    host_subject,
    kernel_argument,
    nova_set,
    plans,
    right_nova_sets,
    right_shared,
    system_affinity,
    without_shared,
)
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.guest.nova import set_line
from pinner.model.machine.boot import argument, argument_cpus, isolated_cpus
from pinner.model.nova_sets import FEW_CORES, FEW_PERCENT, are_few, core_owners, split_cores
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading
from pinner.model.snapshot import Snapshot
from pinner.model.text import counted

ARGUMENTS = ("isolcpus", "nohz_full", "rcu_nocbs")
TOPOLOGIES = "OpenStack Nova: admin/cpu-topologies.html"


def _isolcpus(snapshot: Snapshot) -> CpuSet:
    return isolated_cpus(snapshot.topology) & snapshot.topology.online


def _mixed(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    by_kernel, system = snapshot.dedicated & _isolcpus(snapshot), system_affinity(snapshot)
    by_systemd = snapshot.dedicated - by_kernel - system if system else CpuSet()
    if by_kernel and by_systemd:
        yield Found(
            host_subject(reading),
            f"isolcpus frees CPUs {by_kernel} of cpu_dedicated_set, and CPUAffinity frees CPUs {by_systemd}",
            (Evidence("by isolcpus", str(by_kernel)), Evidence("by CPUAffinity", str(by_systemd))),
            tuple(
                line
                for name in ARGUMENTS
                for line in cpu_argument(snapshot.topology, name, snapshot.dedicated, "domain")
            ),
        )


def _shared_isolated(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    both = snapshot.shared & (_isolcpus(snapshot) | snapshot.topology.isolated)
    if both and not has_pins_alone(snapshot):
        yield Found(
            host_subject(reading),
            f"CPUs {both} of cpu_shared_set are isolated",
            (Evidence("cpu_shared_set", str(snapshot.shared)), Evidence("isolated", str(both))),
            tuple(without_shared(reading)),
        )


def _sets_overlap(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    if both := snapshot.shared & snapshot.dedicated:
        yield Found(
            host_subject(reading),
            f"CPUs {both} are in cpu_shared_set and in cpu_dedicated_set",
            (
                Evidence("cpu_shared_set", str(snapshot.shared)),
                Evidence("cpu_dedicated_set", str(snapshot.dedicated)),
            ),
            tuple(right_shared(reading)),
        )


def _affinity_isolated(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    if both := system_affinity(snapshot) & (_isolcpus(snapshot) | snapshot.topology.isolated):
        rest = snapshot.baseline - both or reading.roles.cpus - snapshot.shared
        yield Found(
            host_subject(reading),
            f"process 1, and so every service, may use the isolated CPUs {both}",
            (Evidence("affinity of process 1", str(snapshot.baseline)), Evidence("isolated", str(both))),
            (Remedy(f"CPUAffinity={rest}", "/etc/systemd/system.conf [Manager]", "reboot"),) if rest else (),
        )


def _core_split(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    if not (cores := split_cores(snapshot)):
        return
    groups: defaultdict[str, CpuSet] = defaultdict(CpuSet)
    for core in cores:
        groups[" and ".join(core_owners(snapshot, core))] |= core
    yield Found(
        host_subject(reading),
        f"{counted(len(cores), 'core')} have several owners: {'; '.join(sorted(groups))}",
        (Evidence("cores", len(cores)), *(Evidence(name, str(cpus)) for name, cpus in sorted(groups.items()))),
        tuple(dict.fromkeys(_whole_cores(reading))),
    )


def _whole_cores(reading: HostReading) -> Iterator[Remedy]:
    """None where a core would stay split, and none that a running guest uses."""
    snapshot = reading.snapshot
    right, lines = right_nova_sets(reading), tuple(right_shared(reading))
    whole = replace(snapshot, dedicated=right.dedicated, shared=right.shared if snapshot.shared else CpuSet())
    stays = (guest for guest in snapshot.guests if guest.nova and not floats_over(guest, snapshot.shared))
    used = union(mask for guest in stays for mask in guest.vcpu_affinities.values() if mask <= snapshot.shared)
    if (
        split_cores(whole)
        or not used <= right.shared | right.dedicated
        or (snapshot.shared != whole.shared and not lines)
    ):
        return
    if right.dedicated != snapshot.dedicated:
        yield from nova_set(snapshot, f"cpu_dedicated_set = {right.dedicated}")
    if snapshot.shared:
        yield from lines


def _floats_outside(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    for guest in snapshot.guests if snapshot.shared else ():
        threads = [vcpu.thread for vcpu in guest.vcpus if vcpu.thread and _floats(guest, vcpu.id)]
        wrong = [thread.affinity - snapshot.shared for thread in threads if not thread.affinity <= snapshot.shared]
        if outside := union(wrong) & snapshot.topology.online:
            others = outside & snapshot.dedicated
            yield Found(
                Subject("guest", guest.name),
                f"{counted(len(wrong), 'vCPU')} of guest {guest.name} may run on CPUs {outside}, outside "
                "cpu_shared_set",
                (
                    Evidence("vCPUs", len(wrong)),
                    Evidence("CPUs outside", str(outside)),
                    Evidence("cpu_shared_set", str(snapshot.shared)),
                    Evidence("CPUs of cpu_dedicated_set", str(others)),
                ),
                plans("", NUMA_LOCAL),
                "critical" if others else None,
            )


def _floats(guest: Guest, vcpu: int) -> bool:
    return guest.nova is not None and (vcpu in guest.shared_vcpus or not guest.dedicated)


def _few(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    online = snapshot.topology.online
    others = online - snapshot.dedicated - snapshot.topology.isolated
    percent = 100 * len(others) / max(len(online), 1)
    if snapshot.dedicated and are_few(snapshot.topology, others):
        yield Found(
            host_subject(reading),
            f"{len(others)} of {len(online)} CPUs are left for the host, emulator threads and all other guests",
            (Evidence("CPUs left", len(others)), Evidence("share", percent, "%"), Evidence("online CPUs", len(online))),
            tuple(_larger(snapshot)),
        )


def _larger(snapshot: Snapshot) -> Iterator[Remedy]:
    """Gives the host the first cores of the dedicated set that no guest has, until it has enough. Not where that is
    impossible."""
    topology = snapshot.topology
    free = snapshot.dedicated - union(guest.cpus for guest in snapshot.nova_owns().guests)
    kept, others = snapshot.dedicated, topology.online - snapshot.dedicated - topology.isolated
    for cpu in topology.cpus:
        if cpu.siblings <= free and len(kept) > len(cpu.siblings) and are_few(snapshot.topology, others):
            kept, others = kept - cpu.siblings, others | cpu.siblings
    if (freed := snapshot.dedicated - kept) and not are_few(snapshot.topology, others):
        yield from nova_set(snapshot, f"cpu_dedicated_set = {kept}")
        for name in ARGUMENTS:
            if (cpus := argument_cpus(topology, name)) & freed:
                yield kernel_argument(argument(topology, name, cpus - freed))


def _several_nodes(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    here = {cpu.node for cpu in snapshot.topology.cpus if cpu.id in snapshot.dedicated and cpu.node is not None}
    every = {node.id for node in snapshot.topology.nodes if node.cpus}
    # A set with CPUs of every node is meant for guests with cells.
    if 1 < len(here) < len(every):
        yield Found(
            host_subject(reading),
            f"cpu_dedicated_set has CPUs of {len(here)} of {len(every)} nodes",
            (
                Evidence("cpu_dedicated_set", str(snapshot.dedicated)),
                Evidence("nodes", ",".join(map(str, sorted(here)))),
            ),
            (Remedy("hw:numa_nodes=1", "the flavors in Nova", "guest restart"),),
        )


def _both_options(reading: HostReading) -> Iterator[Found]:
    conf = reading.snapshot.nova
    if conf and conf.pin_set and (conf.dedicated or conf.shared):
        yield Found(
            host_subject(reading),
            "vcpu_pin_set and its successors are both set",
            (
                Evidence("vcpu_pin_set", conf.pin_set),
                Evidence("cpu_dedicated_set", conf.dedicated),
                Evidence("cpu_shared_set", conf.shared),
            ),
            (Remedy("#vcpu_pin_set", "nova.conf [DEFAULT]"),),
        )


def _old_option(reading: HostReading) -> Iterator[Found]:
    conf = reading.snapshot.nova
    if conf and conf.pin_set and not (conf.dedicated or conf.shared):
        yield Found(
            host_subject(reading),
            "the old option vcpu_pin_set is used: pinned and floating guests share its CPUs",
            (Evidence("vcpu_pin_set", conf.pin_set),),
            tuple(without_shared(reading)),
        )


def _polling(reading: HostReading) -> Iterator[Found]:
    snapshot = reading.snapshot
    if (ovs := snapshot.ovs) is None:
        return
    rest = set_line("cpu_dedicated_set", right_nova_sets(reading).dedicated)
    by_option = {
        "cpu_dedicated_set": (snapshot.dedicated, tuple(nova_set(snapshot, rest))),
        "cpu_shared_set": (snapshot.shared, tuple(without_shared(reading))),
    }
    wrong = tuple(ovs.in_sets(snapshot.nova_owns().sets))
    remedies = tuple(dict.fromkeys(line for option, _, _ in wrong for line in by_option[option][1]))
    for option, use, both in wrong:
        cpus, _ = by_option[option]
        yield Found(
            host_subject(reading),
            f"CPUs {both} of {option} are also those of Open vSwitch's {use}",
            (Evidence(option, str(cpus)), Evidence(use, str(both))),
            remedies,
            severity="critical" if both & ovs.cpus else None,
        )


CHECKS = (
    HostCheck(
        code="nova-dedicated-mixed",
        severity="warning",
        summary="cpu_dedicated_set has CPUs of isolcpus and CPUs that only CPUAffinity frees",
        why="guests on CPUs of the second kind are disturbed by kernel threads, and nobody sees which guests these are",
        source=TOPOLOGIES,
        find=_mixed,
    ),
    HostCheck(
        code="nova-shared-isolated",
        severity="critical",
        summary="cpu_shared_set has isolated CPUs",
        why="nothing balances load on isolated CPUs: floating vCPUs gather on one CPU while others are idle",
        source=TOPOLOGIES,
        find=_shared_isolated,
    ),
    HostCheck(
        code="nova-sets-overlap",
        severity="critical",
        summary="cpu_shared_set and cpu_dedicated_set overlap",
        why="floating guests run on CPUs that pinned guests have to themselves",
        source=TOPOLOGIES,
        find=_sets_overlap,
    ),
    HostCheck(
        code="nova-core-split",
        severity="warning",
        summary="a core is divided between the host, Open vSwitch, cpu_shared_set and cpu_dedicated_set",
        why="the hardware threads of a core share its units and caches: each owner slows down with the other's load",
        source=TOPOLOGIES,
        find=_core_split,
    ),
    HostCheck(
        code="nova-guest-outside-shared",
        severity="warning",
        summary="a floating guest of Nova may run outside cpu_shared_set",
        why="it takes time of the host, or of guests that have their CPUs to themselves",
        source=TOPOLOGIES,
        find=_floats_outside,
        critical="on CPUs of cpu_dedicated_set",
    ),
    HostCheck(
        code="cpuaffinity-isolated",
        severity="warning",
        summary="process 1 (systemd's CPUAffinity) may use isolated CPUs",
        why="each service of the host may run on these CPUs, and stays there, because nothing balances load there",
        source="systemd-system.conf(5): CPUAffinity=",
        find=_affinity_isolated,
    ),
    HostCheck(
        code="nova-few-host-cpus",
        severity="warning",
        summary=f"fewer than {FEW_CORES} cores, or {FEW_PERCENT:g} % of the CPUs, are left for the host",
        why="the host's services, interrupts and emulator threads wait for each other, and guests for them",
        source=TOPOLOGIES,
        find=_few,
    ),
    HostCheck(
        code="nova-dedicated-some-nodes",
        severity="warning",
        summary="cpu_dedicated_set has CPUs of several nodes, and not of all",
        why="a guest without cells may get CPUs of two nodes, and cards and disks of the others are far from guests",
        source=TOPOLOGIES,
        find=_several_nodes,
    ),
    HostCheck(
        code="nova-old-and-new-option",
        severity="critical",
        summary="vcpu_pin_set and its successors are both set",
        why="Nova does not start with vcpu_pin_set and cpu_dedicated_set, and ignores one of the others",
        source=f"{TOPOLOGIES}; OpenStack Nova: configuration/config.html (vcpu_pin_set)",
        find=_both_options,
    ),
    HostCheck(
        code="nova-old-option",
        severity="warning",
        summary="the old option vcpu_pin_set is used",
        why="Nova cannot have pinned and floating guests on one host with it, and later versions ignore it; before "
        "Nova 20.0 (Train) it has no successor: other hosts for floating guests",
        source="OpenStack Nova: configuration/config.html (vcpu_pin_set)",
        find=_old_option,
    ),
    HostCheck(
        code="ovs-mask-in-nova-sets",
        severity="warning",
        summary="threads of Open vSwitch use CPUs of Nova's sets",
        why="a polling thread uses its CPU whole: a vCPU on the same CPU gets half of the time, and packets are lost; "
        "threads of dpdk-lcore-mask belong to the host, off the CPUs of pinned guests",
        source="Open vSwitch: topics/dpdk/pmd.html",
        find=_polling,
        critical="the threads poll",
    ),
)
