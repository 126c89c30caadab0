"""Guests: disks, weights, migrations and managers. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from shlex import quote

from pinner.checks.common import (
    MANY,
    ROOT,
    EmulatorPins,
    host_subject,
    housekeeping,
    in_xml,
    interrupted,
    own_cpus,
    plans,
    within,
)
from pinner.checks.taps import vhosts
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Process, Thread
from pinner.model.outcome.check import Evidence, Found, HostCheck, Remedy, Subject
from pinner.model.reading import HostReading
from pinner.model.snapshot import restricted, vcpu_cpus
from pinner.model.text import counted

BUSY_EMULATOR = 30.0
"""Per cent of one CPU."""
UNEQUAL = 4.0
"""The weight for each vCPU of one guest over that of another."""
MOST_WEIGHT = 10_000
IDLE_WEIGHT = 3 * 100 / 1024
"""The kernel shows 0 for a cgroup with cpu.idle. WEIGHT_IDLEPRIO (kernel/sched/sched.h) is 3, where the weight 100 is
1024."""
CPUTUNE = "libvirt: formatdomain.html (cputune)"


def _no_iothread(reading: HostReading) -> Iterator[Found]:
    before, now = reading.before, reading.now
    for guest in reading.snapshot.guests if before else ():
        first, last = before.threads.get(guest.pid) if before else None, now.threads.get(guest.pid)
        if guest.iothreads or not first or not last or last.run_ns < first.run_ns:
            continue
        load = 100 * (last.run_ns - first.run_ns) / (reading.seconds * 1e9)
        if load >= BUSY_EMULATOR:
            # tap-without-vhost reports it, with the remedy.
            copies = "copies the packets of its taps" if guest.taps and not vhosts(guest) else ""
            lines = (in_xml(guest, "<iothreads>1</iothreads>"), in_xml(guest, "<driver iothread='1'/>", ", each disk"))
            yield Found(
                Subject("guest", guest.name),
                f"QEMU's main loop of guest {guest.name} uses {load:.3g} % of a CPU, "
                f"and {copies or 'the guest has no iothread'}",
                (Evidence("main loop", load, "%"), Evidence("iothreads", 0)),
                () if copies else lines,
            )


def _weights(reading: HostReading) -> Iterator[Found]:
    shares = [share for guest in reading.snapshot.guests if (share := _share(reading, guest)) is not None]
    for (low, poor), (high, rich) in ((min(shares), max(shares)),) if len(shares) > 1 else ():
        if high / low < UNEQUAL:
            continue
        guests = {guest.name: guest for guest in reading.snapshot.guests}
        both = _cpus(guests[poor]) & _cpus(guests[rich])
        if both:
            yield Found(
                Subject("guest", poor),
                f"guest {rich} gets {high / low:.3g} times the CPU time of guest {poor} for each vCPU",
                (
                    Evidence(f"weight per vCPU of {rich}", high),
                    Evidence(f"weight per vCPU of {poor}", low),
                    Evidence("CPUs of both", str(both)),
                ),
                tuple(_more_weight(reading, guests[poor], high)),
            )


def _more_weight(reading: HostReading, guest: Guest, share: float) -> Iterator[Remedy]:
    """The kernel refuses a weight while the cgroup has cpu.idle. None where the highest is too low."""
    path, now = _weight(reading, guest) or ("", None)
    weight = min(max(round(share * len(guest.vcpus)), 1), MOST_WEIGHT)
    if share * len(guest.vcpus) >= UNEQUAL * weight:
        return
    if now == 0:
        yield Remedy(f"echo 0 > {quote(f'/sys/fs/cgroup/{path}/cpu.idle')}", ROOT)
    yield Remedy(f"virsh schedinfo {quote(guest.uuid)} --live cpu_shares={weight}", ROOT)


def _share(reading: HostReading, guest: Guest) -> tuple[float, str] | None:
    weight = _weight(reading, guest)
    if weight is None or not guest.vcpus or not _cpus(guest):
        return None
    return (weight[1] or IDLE_WEIGHT) / len(guest.vcpus), guest.name


def _weight(reading: HostReading, guest: Guest) -> tuple[str, int] | None:
    """The path and the weight of the guest's innermost unit: its slices hold other guests, too."""
    known = ((group.path, reading.details.weights.get(group.path)) for group in guest.cgroups[-1:])
    return next(((path, weight) for path, weight in known if weight is not None), None)


def _cpus(guest: Guest) -> CpuSet:
    return union(vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread and len(vcpu.thread.affinity) > 1)


def _migration(reading: HostReading) -> Iterator[Found]:
    """Those threads are QEMU's own, too."""
    snapshot, vcpus = reading.snapshot, vcpu_cpus(reading.snapshot)
    emulators = restricted(
        (each for guest in snapshot.guests for each in guest.emulator.threads if each not in guest.migration_threads),
        snapshot,
    )
    pins = EmulatorPins(snapshot)
    for guest in snapshot.guests:
        moving = guest.migration_threads
        cpus = union(thread.affinity for thread in moving)
        if moving and (_crowd(moving, cpus, emulators) or cpus & vcpus):
            free = pins.allowed(guest, housekeeping(reading) - interrupted(reading))
            yield Found(
                Subject("guest", guest.name),
                f"{counted(len(moving), 'migration thread')} of guest {guest.name} share CPUs {cpus} with guests",
                (Evidence("migration threads", len(moving)), Evidence("their CPUs", str(cpus))),
                tuple(Remedy(f"taskset -pc {free} {thread.tid}", ROOT) for thread in moving[:MANY])
                if free and not _crowd(moving, free, emulators)
                else (),
            )


def _crowd(moving: tuple[Thread, ...], cpus: CpuSet, emulators: CpuSet) -> bool:
    return len(cpus) < len(moving) and cpus <= emulators


def _overlap(reading: HostReading) -> Iterator[Found]:
    owners: defaultdict[int, list[Guest]] = defaultdict(list)
    for guest in reading.snapshot.guests:
        for cpu in own_cpus(guest):
            owners[cpu].append(guest)
    groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for cpu, guests in owners.items():
        if len(guests) > 1:
            groups[tuple(sorted(guest.name for guest in guests))].append(cpu)
    for names, ids in sorted(groups.items()):
        cpus = CpuSet.of(ids)
        managers = {bool(guest.nova) for guest in reading.snapshot.guests if guest.name in names}
        yield Found(
            Subject("cpu", str(cpus)),
            f"guests {' and '.join(names)} have the same CPUs {cpus} for themselves",
            (
                Evidence("CPUs", str(cpus)),
                Evidence("guests", len(names)),
                Evidence("managers", "Nova and another" if len(managers) > 1 else "one"),
            ),
            plans("--strategy isolated", ""),
        )


def _foreign(reading: HostReading) -> Iterator[Found]:
    known = {guest.pid for guest in reading.snapshot.guests}
    placed = vcpu_cpus(reading.snapshot) | reading.snapshot.dedicated
    for process in reading.snapshot.processes:
        if process.immovable_reason != "guest" or process.kernel or process.pid in known:
            continue
        if both := union(thread.affinity for thread in process.threads) & placed:
            yield _unknown_guest(process, both, reading)


def _unknown_guest(process: Process, both: CpuSet, reading: HostReading) -> Found:
    free = within(housekeeping(reading), process.cpu_limits)
    # One mask for all threads would end pins of single vCPUs.
    has_one_mask = len({thread.affinity for thread in process.threads}) == 1
    return Found(
        Subject("process", f"{process.name} ({process.pid})"),
        f"a guest that libvirt does not know, process {process.pid}, may use the guests' CPUs {both}",
        (Evidence("threads", len(process.threads)), Evidence("shared CPUs", str(both)), Evidence("unit", process.unit)),
        (Remedy(f"taskset -apc {free} {process.pid}", ROOT),) if free and has_one_mask else (),
    )


def _unread(reading: HostReading) -> Iterator[Found]:
    for guest in reading.snapshot.guests:
        if guest.unread:
            why = f"libvirt does not describe guest {guest.name}: {guest.unread}"
            yield Found(Subject("guest", guest.name), f"not known, because {why}", (Evidence("reason", why),))


def _not_sampled(reading: HostReading) -> Iterator[Found]:
    for what, why in {**reading.now.unread, **reading.details.unread}.items():
        reason = f"{what} cannot be read: {why}"
        yield Found(host_subject(reading), f"not known, because {reason}", (Evidence("reason", reason),))


CHECKS = (
    HostCheck(
        code="guest-without-iothread",
        severity="warning",
        summary=f"QEMU's main loop is busy ({BUSY_EMULATOR:g} % of a CPU), and the guest has no iothread",
        why="all disks and the monitor share this one thread",
        source="libvirt: formatdomain.html (iothreads)",
        find=_no_iothread,
    ),
    HostCheck(
        code="guest-weights-differ",
        severity="warning",
        summary=f"a guest gets {UNEQUAL:g} times the CPU time of another on the same CPUs",
        why="the guest with the smaller weight waits whenever the other one wants the CPU",
        source=f"{CPUTUNE} shares; Linux: Documentation/admin-guide/cgroup-v2.rst (cpu.weight)",
        find=_weights,
    ),
    HostCheck(
        code="migration-on-guest-cpus",
        severity="warning",
        summary="migration threads crowd the CPUs of emulators or vCPUs",
        why="each of these threads copies memory at full speed, and the guest's own devices wait",
        source="QEMU: qapi/migration.json (multifd-channels)",
        find=_migration,
    ),
    HostCheck(
        code="vcpus-overlap",
        severity="critical",
        summary="two guests have the same CPUs for themselves",
        why="each gets half of the time, and neither manager knows of the other guest",
        source="OpenStack Nova: admin/cpu-topologies.html (dedicated CPUs)",
        find=_overlap,
    ),
    HostCheck(
        code="foreign-guest",
        severity="warning",
        summary="a guest that libvirt does not know may use CPUs of placed guests",
        why="another manager's guest takes time from guests whose CPUs count as their own",
        source="Linux: sched_setaffinity(2)",
        find=_foreign,
    ),
    HostCheck(
        code="guest-not-read",
        severity="unknown",
        summary="libvirt does not describe a guest",
        why="no check of guests covers it",
        source="pinner",
        find=_unread,
    ),
    HostCheck(
        code="host-not-read",
        severity="unknown",
        summary="a part of the host's counters cannot be read",
        why="the checks that need it find nothing",
        source="pinner",
        find=_not_sampled,
    ),
)
