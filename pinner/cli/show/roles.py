"""The role of each CPU, now and as planned, for the drawing of a host."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pinner.model.cpuset import CpuSet, union

if TYPE_CHECKING:
    from pinner.model.machine.process import Thread
    from pinner.model.machine.topology import Topology
    from pinner.model.plan.plan import Plan
    from pinner.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Role:
    """A use of a CPU; ``style`` is a style of rich."""

    letter: str
    name: str
    style: str


HOUSEKEEPING = Role("H", "housekeeping", "black on cyan")
EMULATOR = Role("E", "emulator", "black on yellow")
VCPU = Role("V", "vCPU", "black on green")
ISOLATED = Role("I", "isolated", "white on blue")
DEDICATED = Role("D", "dedicated by Nova", "white on magenta")
OFFLINE = Role("x", "offline", "dim")
UNUSED = Role(".", "unused", "default")
ORDER = (HOUSEKEEPING, EMULATOR, VCPU, ISOLATED, DEDICATED, UNUSED, OFFLINE)

Uses = Mapping[int, Role]
"""The role of every CPU, by its id."""


def shared(roles: Iterable[Role]) -> Role:
    return Role("*", " + ".join(role.name for role in ORDER if role in roles), "white on red")


def uses_now(snapshot: "Snapshot", busy_threshold: float) -> Uses:
    """The roles by the present affinities of busy host processes, emulator threads and vCPUs. ``busy_threshold`` is in
    per cent of one CPU."""
    busy = (
        thread for p in snapshot.processes if not p.immovable_reason and p.load > busy_threshold for thread in p.threads
    )
    guests = [guest for guest in snapshot.guests if not guest.dedicated]
    emulators = (thread for guest in guests for thread in (*guest.emulator.threads, *guest.vhost_threads))
    vcpus = (vcpu.thread for guest in guests for vcpu in guest.vcpus if vcpu.thread)
    sets = {
        HOUSEKEEPING: _affinity(thread for thread in busy if not thread.immovable_reason),
        EMULATOR: _affinity(emulators),
        VCPU: _affinity(vcpus),
    }
    return _paint(snapshot.topology, sets, snapshot.topology.isolated, _dedicated(snapshot))


def uses_unknown(topology: "Topology") -> Uses:
    return _paint(topology, {}, topology.isolated, CpuSet())


def uses_planned(snapshot: "Snapshot", plan: "Plan") -> Uses:
    """CPUs that the plan isolates for vCPUs are isolated."""
    wanted = plan.isolation.wanted if plan.isolation else CpuSet()
    sets = {HOUSEKEEPING: plan.roles.housekeeping, EMULATOR: plan.roles.emulator, VCPU: plan.roles.vcpu - wanted}
    return _paint(snapshot.topology, sets, snapshot.topology.isolated | wanted, _dedicated(snapshot))


def _affinity(threads: Iterable["Thread"]) -> CpuSet:
    return union({thread.affinity for thread in threads})


def _dedicated(snapshot: "Snapshot") -> CpuSet:
    pinned = (vcpu.thread.affinity for g in snapshot.guests if g.dedicated for vcpu in g.vcpus if vcpu.thread)
    return snapshot.dedicated | union(pinned)


def _paint(topology: "Topology", sets: Mapping[Role, CpuSet], isolated: CpuSet, dedicated: CpuSet) -> Uses:
    painted = {}
    for cpu in topology.cpus:
        roles = [role for role, cpus in sets.items() if cpu.id in cpus]
        if not cpu.online:
            painted[cpu.id] = OFFLINE
        elif len(roles) > 1:
            painted[cpu.id] = shared(roles)
        elif roles:
            painted[cpu.id] = roles[0]
        elif cpu.id in dedicated:
            painted[cpu.id] = DEDICATED
        else:
            painted[cpu.id] = ISOLATED if cpu.id in isolated else UNUSED
    return painted
