"""What several checks need: growth of counters, CPUs by role, lines of remedies. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from shlex import quote
from typing import NamedTuple, TypeVar

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest, Vcpu
from pinner.model.guest.nova import NovaSets
from pinner.model.machine.boot import argument, argument_cpus, isolated_cpus, words
from pinner.model.machine.interrupts import is_managed
from pinner.model.machine.process import CpuLimit
from pinner.model.machine.topology import Topology
from pinner.model.nova_sets import right_sets
from pinner.model.outcome.check import Evidence, Found, Remedy, Subject
from pinner.model.reading import HostReading, Nic, NicCounters
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.snapshot import OvsDpdk, Snapshot, emulator_cpus, restricted, vcpu_cpus

T = TypeVar("T")
ROOT = "as root"
BOOT = "the kernel's command line"
COMPUTE = "nova.conf [compute]"
SINCE_TRAIN = "since Nova 20.0 (Train)"
"""Before, nova-compute knows only vcpu_pin_set."""
FLAVOR = "the flavor in Nova"
SYSCTL_FILE = "/etc/sysctl.d/90-pinner.conf"
MANY = 32
"""The most lines of one remedy."""


class NotKnown(Exception):
    """For one subject. The message completes "not known, because ..."."""


def find_each(
    items: Iterable[T], subject: Callable[[T], Subject], find: Callable[[T], Iterable[Found]]
) -> Iterator[Found]:
    """An item about which something is not known does not hide the others."""
    for item in items:
        try:
            yield from find(item)
        except NotKnown as error:
            evidence = (Evidence("reason", str(error)),)
            yield Found(subject(item), f"not known, because {error}", evidence, severity="unknown")


def growth(before: Mapping[str, int], after: Mapping[str, int], name: str) -> int:
    """0 where the host has no such counter. Raises NotKnown."""
    if name not in before or name not in after:
        return 0
    return grown(name, before[name], after[name])


def grown(name: str, before: int, after: int) -> int:
    """Raises NotKnown where the counter shrank."""
    if after < before:
        raise NotKnown(f"the counter {name} went back from {before} to {after}: it was reset, or it wrapped")
    return after - before


def grown_counters(reading: HostReading, names: Iterable[str]) -> dict[str, int]:
    """The counters that grew in the sample. Raises NotKnown."""
    if reading.before is None:
        return {}
    grew = {name: growth(reading.before.counters, reading.now.counters, name) for name in names}
    return {name: count for name, count in grew.items() if count}


class SampledNic(NamedTuple):
    nic: Nic
    before: NicCounters
    now: NicCounters

    @property
    def subject(self) -> Subject:
        return Subject("nic", self.nic.name)


def sampled_nics(reading: HostReading) -> Iterator[SampledNic]:
    if reading.before is None:
        return
    before, now = ({nic.key: nic for nic in sample.nics} for sample in (reading.before, reading.now))
    for nic in reading.details.nics:
        if nic.key in before and nic.key in now:
            yield SampledNic(nic, before[nic.key], now[nic.key])


def rate(name: str, count: int, seconds: float, unit: str) -> tuple[Evidence, Evidence]:
    return Evidence(name, count, unit), Evidence(f"{name} rate", count / seconds, f"{unit}/s")


def rates(counts: Mapping[str, int], seconds: float, unit: str) -> tuple[Evidence, ...]:
    return tuple(fact for name, count in counts.items() for fact in rate(name, count, seconds, unit))


PLAN = "as root, then pinner apply PLAN_ID"
NUMA_LOCAL = "--strategy numa-local"


def plans(*options: str) -> tuple[Remedy, ...]:
    """The report leaves out those that do not cure their finding."""
    return tuple(Remedy(f"pinner plan {each}".rstrip(), PLAN) for each in options)


def flavor(line: str, guests: Iterable[Guest]) -> tuple[Remedy, ...]:
    """None for guests that are not Nova's: they have no flavor."""
    return (Remedy(line, FLAVOR, "guest restart"),) if any(guest.nova for guest in guests) else ()


def in_xml(guest: Guest, line: str, where: str = "") -> Remedy:
    return Remedy(line, f"the domain XML of {guest.name}{where}", "guest restart")


def own_cpus(guest: Guest) -> CpuSet:
    """The CPUs of vCPUs with one CPU each, without the pools of one CPU that pinner gives to several threads."""
    masks = (vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread)
    return union(mask for mask in masks if len(mask) == 1) - guest.pooled


def own_cores(guest: Guest, snapshot: Snapshot) -> CpuSet:
    return union(snapshot.topology.online_cores.get(cpu, CpuSet()) for cpu in own_cpus(guest))


def nodes_of(cpus: CpuSet, snapshot: Snapshot) -> set[int]:
    return {node for node, here in snapshot.topology.cpus_by_node.items() if here & cpus}


def homes(vcpus: Iterable[Vcpu], snapshot: Snapshot) -> set[int]:
    """The nodes of the vCPUs' CPUs. Empty where the vCPUs may run anywhere."""
    return nodes_of(restricted((vcpu.thread for vcpu in vcpus if vcpu.thread), snapshot), snapshot)


def memory_homes(vcpus: Iterable[Vcpu], snapshot: Snapshot) -> set[int]:
    """The nodes of the nearest memory: a node without memory has that of another one."""
    sources = snapshot.topology.memory_sources
    return {sources.get(node, node) for node in homes(vcpus, snapshot)}


def device_node(device: str, snapshot: Snapshot) -> int | None:
    return next((known.node for known in snapshot.topology.devices if known.name == device), None)


def roles(snapshot: Snapshot) -> tuple[tuple[str, CpuSet], ...]:
    """The CPUs that interrupts and host work should leave alone; no CPU has two roles."""
    isolated, vcpus = snapshot.topology.isolated | snapshot.dedicated, vcpu_cpus(snapshot)
    emulators = emulator_cpus(snapshot) - isolated - vcpus
    return ("isolated", isolated), ("vCPU", vcpus - isolated), ("emulator", emulators)


def system_affinity(snapshot: Snapshot) -> CpuSet:
    """The affinity of process 1; empty where it is not restricted."""
    whole = snapshot.topology.online - snapshot.topology.isolated
    return CpuSet() if whole == snapshot.baseline else snapshot.baseline


def housekeeping(reading: HostReading, node: int | None = None) -> CpuSet:
    """The CPUs that a remedy may give to interrupts and host work: of a plan's pools, without those of a guest or
    Nova's cpu_shared_set; of the node if it has some, else of the host; may be empty."""
    free = reading.roles.cpus - reading.snapshot.shared - union(cpus for _, cpus in roles(reading.snapshot))
    here = CpuSet.of(cpu.id for cpu in reading.snapshot.topology.cpus if cpu.node == node)
    return free & here or free


def interrupted(reading: HostReading) -> CpuSet:
    """The CPUs that take interrupts of devices which disturb no guest yet, by those that the kernel places and by the
    others. Emulator threads that move there would be disturbed."""
    snapshot = reading.snapshot
    came = {(counts.number, counts.name) for counts in reading.now.irqs if counts.total}
    taking: defaultdict[tuple[str, bool], CpuSet] = defaultdict(CpuSet)
    for irq in snapshot.irqs.irqs if snapshot.irqs else ():
        if (irq.number, irq.name) in came:
            taking[irq.device, is_managed(irq.name, irq.managed)] |= irq.taking & snapshot.topology.online
    guests = union(cpus for _, cpus in roles(snapshot))
    return union(cpus for cpus in taking.values() if not cpus & guests)


def command(line: str) -> Remedy:
    return Remedy(line, ROOT)


def within(cpus: CpuSet, limits: tuple[CpuLimit, ...]) -> CpuSet:
    return cpus & limits[-1].cpus if limits else cpus


@dataclass(frozen=True)
class EmulatorPins:
    """Lines that pin emulators, each beside all guests. Without slots, so that these are looked at once."""

    snapshot: Snapshot

    def allowed(self, guest: Guest, cpus: CpuSet) -> CpuSet:
        """Of these, what the guest's cgroups, definition and memory allow, off the cores of guests' own CPUs and off
        cpu_shared_set."""
        memory = {*chain.from_iterable(each.nodes for each in guest.numa.bindings()), *guest.numa.huge_kib}
        near = union(self.snapshot.topology.cpus_by_node.get(node, CpuSet()) for node in memory)
        allowed = within(cpus, guest.cpu_limits) & (near or cpus) & (guest.restriction or cpus)
        return allowed - self.snapshot.shared - self._cores

    def remedies(self, guest: Guest, cpus: CpuSet) -> tuple[Remedy, ...]:
        """A plan where more guests than these CPUs need such a line: their emulators would crowd there. A plan leaves
        those that Nova pinned where they are, unless it is asked to move them."""
        allowed = self.allowed(guest, cpus)
        if self._needing[guest.dedicated] > len(allowed):
            return plans("--nova-emulators" if guest.dedicated else "")
        return (command(f"virsh emulatorpin {quote(guest.uuid)} {allowed} --live"),) if allowed else ()

    @cached_property
    def _cores(self) -> CpuSet:
        return union(own_cores(each, self.snapshot) for each in self.snapshot.guests)

    @cached_property
    def _needing(self) -> Counter[bool]:
        """Guests that need a line, by whether Nova pinned them."""
        return Counter(each.dedicated for each in self.snapshot.guests if self._needs_one(each))

    def _needs_one(self, guest: Guest) -> bool:
        threads = guest.emulator.threads
        on_cores = restricted(threads, self.snapshot) & self._cores
        return bool(on_cores or union(each.affinity for each in threads) & own_cpus(guest))


def sysctl(key: str, value: object) -> tuple[Remedy, Remedy]:
    """Sets it now, and keeps it over a restart."""
    return command(f"sysctl -w {key}={value}"), Remedy(f"{key} = {value}", SYSCTL_FILE)


def sysctl_now(reading: HostReading, key: str) -> int | None:
    return (reading.snapshot.sysctls or {}).get(key)


def planned_sysctl(key: str, now: int | None, otherwise: int | None = None) -> tuple[Remedy, ...]:
    """A plan's value; where the present one is as good, ``otherwise``, or none."""
    if now is None or not SYSCTLS[key].is_good(now):
        return sysctl(key, SYSCTLS[key].value)
    return () if otherwise is None else sysctl(key, otherwise)


def kernel_argument(line: str) -> Remedy:
    return Remedy(line, BOOT, "reboot")


def cpu_argument(topology: Topology, name: str, wanted: CpuSet, *needed: str) -> Iterator[Remedy]:
    """isolcpus, nohz_full or rcu_nocbs for the CPUs ``wanted``, with the CPUs and flags of this boot; none where this
    boot has it."""
    known = topology.online | topology.offline
    line = argument(topology, name, (argument_cpus(topology, name) & known) | wanted, *needed)
    if line not in words(topology.kernel.command_line)[0]:
        yield kernel_argument(line)


def nova_set(snapshot: Snapshot, line: str) -> Iterator[Remedy]:
    """vcpu_pin_set goes: beside its successors nova-compute does not start, or ignores them."""
    if not _has_pin_set(snapshot):
        yield Remedy(line, COMPUTE)
    else:
        yield Remedy(line, f"{COMPUTE}, {SINCE_TRAIN}")
        yield Remedy("#vcpu_pin_set", f"nova.conf [DEFAULT], {SINCE_TRAIN}")


def _has_pin_set(snapshot: Snapshot) -> bool:
    return snapshot.nova is not None and bool(snapshot.nova.pin_set)


def has_pins_alone(snapshot: Snapshot) -> bool:
    """Of vcpu_pin_set, where all guests of Nova are pinned."""
    guests = [guest for guest in snapshot.guests if guest.nova]
    return _has_pin_set(snapshot) and bool(guests) and all(guest.dedicated for guest in guests)


def right_nova_sets(reading: HostReading) -> NovaSets:
    """Of vcpu_pin_set, pinned guests get isolated CPUs and those that they have; all, where no guest floats."""
    snapshot = reading.snapshot
    if not _has_pin_set(snapshot):
        return right_sets(snapshot, reading.roles.vcpu)
    pinned = union(guest.cpus for guest in snapshot.nova_owns().guests)
    if has_pins_alone(snapshot):
        return NovaSets(right_sets(replace(snapshot, dedicated=snapshot.shared, shared=CpuSet()), CpuSet()).dedicated)
    alone = snapshot.shared & (snapshot.topology.isolated | isolated_cpus(snapshot.topology) | pinned)
    divided = replace(snapshot, dedicated=snapshot.dedicated | alone, shared=snapshot.shared - alone)
    return right_sets(divided, reading.roles.vcpu - alone)


def right_shared(reading: HostReading) -> Iterator[Remedy]:
    """The line of cpu_shared_set that is right for the host, and safe for its guests."""
    snapshot, right = reading.snapshot, right_nova_sets(reading)
    is_old = _has_pin_set(snapshot)
    if not right.shared or not all(_is_safe_for(guest, right, snapshot) for guest in snapshot.guests if guest.nova):
        return
    if is_old and right.dedicated != snapshot.dedicated:
        yield Remedy(f"cpu_dedicated_set = {right.dedicated}", f"{COMPUTE}, {SINCE_TRAIN}")
    if is_old or right.shared != snapshot.shared:
        yield from nova_set(snapshot, f"cpu_shared_set = {right.shared}")


def _is_safe_for(guest: Guest, right: NovaSets, snapshot: Snapshot) -> bool:
    """The sets must not take it away from its memory, nor the set from CPUs on which it goes on floating."""
    masks, memory = guest.vcpu_affinities.values(), {*guest.memory_per_node}
    if not floats_over(guest, snapshot.shared):
        return guest.dedicated or not union(masks) & snapshot.shared - right.shared
    after = union(mask & right.shared or right.shared for mask in masks)
    left = nodes_of(union(masks), snapshot) - nodes_of(after, snapshot)
    return memory <= nodes_of(right.shared, snapshot) and not memory & left


def floats_over(guest: Guest, shared: CpuSet) -> bool:
    """Whether another cpu_shared_set changes its CPUs at its next start."""
    masks = guest.vcpu_affinities.values()
    return guest.nova is not None and all(mask <= shared and (len(mask) > 1 or mask == shared) for mask in masks)


def without_shared(reading: HostReading) -> Iterator[Remedy]:
    """The right line; where a plan has no CPUs for vCPUs, guests can only have CPUs of their own. With both sets empty,
    Nova gives floating guests all CPUs."""
    snapshot = reading.snapshot
    ovs = snapshot.ovs or OvsDpdk()
    whole = (snapshot.dedicated | snapshot.shared) - ovs.cpus - ovs.masks.lcore
    if right_nova_sets(reading).shared:
        yield from right_shared(reading)
    elif snapshot.shared and whole:
        rest = "" if _has_pin_set(snapshot) else ", without cpu_shared_set"
        yield from nova_set(snapshot, f"cpu_dedicated_set = {whole}{rest}")


def host_subject(reading: HostReading) -> Subject:
    return Subject("host", reading.snapshot.host)


def number(settings: Mapping[str, str], path: str) -> int | None:
    words = settings.get(path, "").split()
    try:
        return int(words[0]) if words else None
    except ValueError:
        return None
