"""What a line of a remedy does to a host, in memory, by the kind of line."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from shlex import split

from support.hosts import cpus
from support.made_up.checks import started_again
from support.made_up.checks.started_again import ended

from pinner.checks.common import floats_over
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.nova import NovaConf
from pinner.model.machine.boot import argument_cpus, isolcpus_flags, name_of, words
from pinner.model.machine.interrupts import is_managed
from pinner.model.machine.topology import Topology
from pinner.model.outcome.check import Remedy
from pinner.model.plan.request import Request
from pinner.model.reading import HostReading
from pinner.model.snapshot import Snapshot, emulator_cpus, vcpu_cpus, with_affinities
from pinner.model.states import Governor
from pinner.planning.available.numa import bound_of


class CannotApplyError(Exception):
    """The line changes nothing that a reading has: the message is its kind."""


def pasted(reading: HostReading, remedy: Remedy) -> tuple[HostReading, CpuSet]:
    """The reading with the line in force, and the CPUs that the line gives to the host's work or to a guest. Raises
    CannotApplyError."""
    text = f"{remedy.where}: {remedy.line}" if remedy.line.startswith("<") else remedy.line
    for pattern, change in _KINDS:
        if match := re.fullmatch(pattern, text):
            return change(reading, *match.groups())
    raise CannotApplyError(_kind(remedy))


def _kind(remedy: Remedy) -> str:
    for pattern in _NO_EFFECT:
        if re.match(pattern, remedy.line):
            return pattern
    raise AssertionError(f"no kind of line is known for: {remedy}")


_NO_EFFECT = (
    "<",
    "(hw|quota):",
    "ethtool -L DEVICE",
    "journalctl",
    "pinner (apply|compare)",
    "reserved_host_memory_mb",
    "(rx_queue_size|hw_vif_model)",
    "systemctl (restart|set-property system.slice)",
    "zgrep",
    "cpu_power_governor_high",
    "cpufreq.default_governor",
)
"""Lines whose effect only a new boot, a new guest or the next load shows."""


def request(line: str) -> Request:
    """The request of `pinner plan …`."""
    options: dict[str, str] = {}
    processes: list[str] = []
    given = iter(split(line)[2:])
    for option in given:
        if option == "--nova-emulators":
            continue
        value = next(given)
        if option == "--process":
            processes.append(value)
        else:
            options[option[2:].replace("-", "_")] = value
    numbers = {name: int(value) if name == "minimum_cores" else value for name, value in options.items()}
    return Request(**numbers, processes=tuple(processes), nova_emulators="--nova-emulators" in line)


def _host(reading: HostReading, **more: object) -> HostReading:
    return replace(reading, snapshot=replace(reading.snapshot, **more))


def _emulatorpin(reading: HostReading, uuid: str, mask: str):
    guest = reading.snapshot.running_guest(uuid)
    outside = cpus(mask) - guest.cpu_limits[-1].cpus if guest.cpu_limits else CpuSet()
    assert not outside, f"CPUs {outside} are outside {guest.cpu_limits[-1]}"
    bound = bound_of(guest, reading.snapshot.topology)
    far = cpus(mask) - bound.nodes if bound and bound.nodes is not None else CpuSet()
    assert not far, f"CPUs {far} are outside {bound.nodes}, to which {guest.name} is bound"
    return _moved(reading, (thread.tid for thread in guest.emulator.threads), mask)


def _taskset(reading: HostReading, all_: str, mask: str, pid: str):
    every = (process for process in reading.snapshot.processes if process.pid == int(pid))
    threads = [thread.tid for process in every for thread in process.threads] if all_ else [int(pid)]
    of_guests = [g for g in reading.snapshot.guests if int(pid) in {t.tid for t in g.emulator.threads}]
    of_processes = [each for each in reading.snapshot.processes if each.pid == int(pid)]
    limits = [each.cpu_limits[-1].cpus for each in (*of_guests, *of_processes) if each.cpu_limits]
    outside = union(cpus(mask) - each for each in limits)
    assert not outside, f"the kernel refuses CPUs {outside}"
    masks = {thread.affinity for process in of_processes for thread in process.threads}
    assert not all_ or len(masks) < 2, f"ends the pins of single threads: {masks}"
    return _moved(reading, threads, mask)


def _moved(reading: HostReading, tids: Iterable[int], mask: str):
    moved = with_affinities(reading.snapshot, dict.fromkeys(tids, cpus(mask)))
    return replace(reading, snapshot=moved), cpus(mask)


def _setting(reading: HostReading, value: str, path: str):
    settings = reading.details.settings
    shown = settings.get(path, "")
    chosen = re.sub(rf"\b{re.escape(value)}\b", f"[{value}]", re.sub(r"[][]", "", shown)) if "[" in shown else value
    return replace(reading, details=replace(reading.details, settings={**settings, path: chosen})), CpuSet()


def _mask(text: str) -> CpuSet:
    bits = int(text.replace(",", ""), 16)
    return CpuSet.of(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def _workqueue(reading: HostReading, mask: str):
    top = reading.snapshot.topology
    return _host(reading, topology=replace(top, kernel=replace(top.kernel, unbound=_mask(mask)))), _mask(mask)


def _irq(reading: HostReading, mask: str, number: str):
    irqs = reading.snapshot.irqs
    changed = tuple(
        replace(each, cpus=cpus(mask), effective=CpuSet()) if each.number == int(number) else each for each in irqs.irqs
    )
    return _host(reading, irqs=replace(irqs, irqs=changed)), cpus(mask)


def _rps(reading: HostReading, mask: str, name: str, queue: str):
    changed = (
        replace(each, cpus=_mask(mask)) if (each.interface, each.queue) == (name, int(queue)) else each
        for each in reading.snapshot.rps
    )
    return _host(reading, rps=tuple(changed)), _mask(mask)


def _bridge(reading: HostReading, value: str, name: str, option: str):
    field = {"querier": "is_querier", "snooping": "is_snooping"}[option]
    nics = (
        replace(nic, bridge=replace(nic.bridge, **{field: value == "1"})) if nic.name == name and nic.bridge else nic
        for nic in reading.details.nics
    )
    return replace(reading, details=replace(reading.details, nics=tuple(nics))), CpuSet()


def _nic(reading: HostReading, name: str, **more: object) -> HostReading:
    nics = tuple(replace(nic, **more) if nic.name == name else nic for nic in reading.details.nics)
    return replace(reading, details=replace(reading.details, nics=nics))


def _queue_length(reading: HostReading, name: str, length: str):
    changed = _nic(reading, name, queue_length=int(length))
    return ended(changed, "nics") if changed != reading else changed, CpuSet()


def _received(reading: HostReading, field: str, name: str, **more: object):
    """With more room the card drops no packets."""
    changed, given = _card(reading, field, name, **more)
    return ended(changed, "nics") if changed != reading else changed, given


def _card(reading: HostReading, field: str, name: str, **more: object):
    cards = (replace(each, **more) if each.interface == name else each for each in getattr(reading.snapshot, field))
    return _host(reading, **{field: tuple(cards)}), CpuSet()


def _offloads(reading: HostReading, name: str, words_: str):
    long = {"gro": "rx-gro", "gso": "tx-generic-segmentation", "tso": "tx-tcp-segmentation", "rx": "rx-checksum"}
    nic = next(nic for nic in reading.details.nics if nic.name == name)
    on = {long[word]: True for word in words_.split() if word != "on"}
    return _nic(reading, name, offloads={**nic.offloads, **on}), CpuSet()


def _for_guests(reading: HostReading, mask: str, *more: CpuSet) -> CpuSet:
    """The CPUs of a line that is for those of guests."""
    snapshot = reading.snapshot
    theirs = union((vcpu_cpus(snapshot), snapshot.dedicated, snapshot.topology.isolated, *more))
    others = (cpus(mask) - theirs) | (cpus(mask) & snapshot.topology.offline)
    assert not others, f"names CPUs {others}, which are offline or not for guests"
    return cpus(mask)


def _governor(reading: HostReading, mask: str, governor: str):
    named = _for_guests(reading, mask)
    top, domains = reading.snapshot.topology, reading.snapshot.governors
    changed = tuple(replace(cpu, governor=governor) if cpu.id in named else cpu for cpu in top.cpus)
    governed = domains and tuple(
        replace(each, governor=Governor(governor)) if each.cpus & named else each for each in domains
    )
    return _host(reading, topology=replace(top, cpus=changed), governors=governed), CpuSet()


def _idle(reading: HostReading, mask: str, state: str):
    named = _for_guests(reading, mask)
    samples = (
        replace(
            sample,
            idle=tuple(
                replace(each, is_disabled=True) if each.cpu in named and each.number == int(state) else each
                for each in sample.idle
            ),
        )
        for sample in reading.samples
    )
    return replace(reading, samples=tuple(samples)), CpuSet()


def _disabled(reading: HostReading, units: str):
    """A unit has one of systemd's names."""
    named = split(units)
    assert all(re.fullmatch(r"[^/]+\.service", unit) for unit in named), f"no service: {named}"
    stays = (each for each in reading.snapshot.processes if not {each.unit, f"{each.name}.service"} & {*named})
    return _host(reading, processes=tuple(stays)), CpuSet()


def _banned(reading: HostReading, mask: str):
    running = reading.snapshot.irqbalance or ()
    before = (cpus_ for each in running for cpus_ in (each.banned, each.banned_now) if cpus_ is not None)
    named = _for_guests(reading, mask, emulator_cpus(reading.snapshot), *before)
    assert not reading.snapshot.topology.online <= named, "leaves interrupts no CPU"
    every = (replace(each, banned=named, banned_now=named) for each in running)
    return _host(reading, irqbalance=tuple(every)), CpuSet()


def _cpu_affinity(reading: HostReading, mask: str):
    return _booted(_host(reading, baseline=cpus(mask)), reading.snapshot), cpus(mask) - reading.snapshot.baseline


def _set(reading: HostReading, option: str, mask: str, rest: str = ""):
    """nova-compute starts with the set, and the guests that float over the former one start again. Those on some of
    its CPUs get these again as far as they may."""
    field = {"cpu_dedicated_set": "dedicated", "cpu_shared_set": "shared"}[option]
    found = reading.snapshot
    sets = {field: cpus(mask)} | ({"shared": CpuSet()} if rest else {})
    conf = found.nova and replace(found.nova, **{name: str(value) for name, value in sets.items()})
    changed = replace(found, **sets, nova=conf)
    floating = [g for g in changed.guests if floats_over(g, found.shared)] if sets.get("shared") else []
    threads = [t for g in floating for many in g.threads_by_target.values() for t in many]
    masks = {
        t.tid: changed.shared if t.affinity == found.shared else t.affinity & changed.shared or changed.shared
        for t in threads
    }
    near = {node for node, here in found.topology.cpus_by_node.items() if here & changed.shared}
    far = [g.name for g in floating if not {*g.memory_per_node} <= near]
    assert not far, f"takes guests {far} away from their memory"
    return replace(reading, snapshot=with_affinities(changed, masks)), sets.get("shared", CpuSet()) - found.shared


def _unset(reading: HostReading, option: str):
    field = {"vcpu_pin_set": "pin_set", "cpu_shared_set": "shared", "cpu_dedicated_set": "dedicated"}[option]
    conf = replace(reading.snapshot.nova or NovaConf(()), **{field: ""})
    gone = {"shared": cpus(conf.shared)} if field == "pin_set" else {field: CpuSet()}
    pinned = union(guest.cpus for guest in reading.snapshot.nova_owns().guests)
    if field == "pin_set" and (lost := pinned - reading.snapshot.dedicated):
        raise AssertionError(f"leaves pinned guests on CPUs {lost} in no set")
    return _host(reading, nova=conf, **gone), CpuSet()


def _argument(reading: HostReading, line: str):
    """The host after a boot with the argument."""
    top = reading.snapshot.topology
    name = name_of(line.removeprefix("no "))
    given = words(top.kernel.command_line)[0]
    assert line not in given, f"{line} is set already"
    kernel = [word for word in given if name_of(word) != name]
    added = [] if line.startswith("no ") else [line]
    booted = replace(top, kernel=replace(top.kernel, command_line=" ".join([*kernel, *added])))
    if name == "isolcpus":
        booted, reading = _isolated(top, booted), _unmanaged(reading, booted)
    elif name == "nohz_full":
        alone = argument_cpus(booted, name) & top.online
        booted = replace(booted, cpus=tuple(replace(cpu, nohz_full=cpu.id in alone) for cpu in booted.cpus))
    new = booted.isolated - top.isolated
    base = reading.snapshot.baseline
    base = booted.online - booted.isolated if base == top.online - top.isolated else base
    changed = _host(reading, topology=booted, baseline=base)
    hosts = reading.roles.housekeeping | reading.roles.emulator
    assert not (both := new & hosts), f"isolates CPUs {both} of the host, which has {hosts}"
    flags = isolcpus_flags(top) - isolcpus_flags(booted) if name == "isolcpus" and added else frozenset()
    assert not flags, f"drops the flags {flags}"
    used = argument_cpus(booted, name) if name == "irqaffinity" else CpuSet()
    return _booted(changed, reading.snapshot), used


def _isolated(top: Topology, booted: Topology) -> Topology:
    """The flag domain isolates, and so does an argument without flags. Partitions stay."""

    def by_boot(each: Topology) -> CpuSet:
        flags = isolcpus_flags(each)
        return argument_cpus(each, "isolcpus") & each.online if not flags or "domain" in flags else CpuSet()

    alone = (top.isolated - by_boot(top)) | by_boot(booted)
    return replace(booted, cpus=tuple(replace(cpu, isolated=cpu.id in alone) for cpu in booted.cpus))


def _unmanaged(reading: HostReading, booted: Topology) -> HostReading:
    """The flag managed_irq keeps the kernel's interrupts off the CPUs."""
    kept = argument_cpus(booted, "isolcpus") if "managed_irq" in isolcpus_flags(booted) else CpuSet()
    if (irqs := reading.snapshot.irqs) is None or not kept:
        return reading
    moved = (
        replace(each, cpus=(each.cpus - kept) or booted.online - kept, effective=CpuSet())
        if is_managed(each.name, each.managed)
        else each
        for each in irqs.irqs
    )
    return _host(reading, irqs=replace(irqs, irqs=tuple(moved)))


def _booted(reading: HostReading, before: Snapshot) -> HostReading:
    """Threads that nobody placed have the new affinity of process 1; the kernel's own work avoids isolated CPUs."""
    after = reading.snapshot
    threads = [t for g in after.guests for many in g.threads_by_target.values() for t in many]
    threads += [t for p in after.processes for t in p.threads if not p.kernel]
    masks = {t.tid: after.baseline for t in threads if before.baseline and before.baseline <= t.affinity}
    new = after.topology.isolated - before.topology.isolated
    masks |= {t.tid: t.affinity - new for p in after.processes if p.kernel for t in p.threads if t.affinity - new}
    kernel = replace(after.topology.kernel, unbound=after.topology.kernel.unbound - new)
    booted = replace(after, topology=replace(after.topology, kernel=kernel))
    return replace(reading, snapshot=with_affinities(booted, masks))


def _guests_weight(reading: HostReading, name: str, value: str):
    """vCPUs wait for no process of the host."""
    return ended(_host(reading, cpu_weights={name: int(value)}), "threads"), CpuSet()


def _thp(reading: HostReading, value: str):
    return _setting(reading, value, "sys/kernel/mm/transparent_hugepage/enabled")


_CLOCK = "sys/devices/system/clocksource/clocksource0"
_XML = r"the domain XML of (\S+?)"
_KINDS: tuple[tuple[str, Callable[..., tuple[HostReading, CpuSet]]], ...] = (
    (r"virsh emulatorpin (\S+) (\S+) --live", _emulatorpin),
    (r"taskset -(a?)pc (\S+) (\d+)", _taskset),
    (r"(?:sysctl -w )?((?:net|vm|kernel)\.\S+?) ?= ?'?(-?\d+(?: \d+)*)'?", started_again.sysctl),
    (r"echo (\S+) > /sys/devices/virtual/workqueue/cpumask", _workqueue),
    (r"echo (\S+) > /proc/irq/(\d+)/smp_affinity_list", _irq),
    (r"echo (\S+) > /sys/class/net/(\S+)/queues/rx-(\d+)/rps_cpus", _rps),
    (r"echo (\S+) > /sys/class/net/(\S+)/bridge/multicast_(\w+)", _bridge),
    (r"echo (\S+) > /((?:sys/kernel/mm|sys/devices/system/clocksource)/\S+)", _setting),
    (r"ip link set dev (\S+) txqueuelen (\d+)", _queue_length),
    (r"ethtool -G (\S+) rx (\d+)", lambda r, name, size: _received(r, "rings", name, size=int(size))),
    (r"ethtool -L (?!DEVICE)(\S+) combined (\d+)", lambda r, name, n: _received(r, "queues", name, count=int(n))),
    (r"ethtool -C (\S+) adaptive-rx on", lambda r, name: _card(r, "coalescing", name, is_adaptive=True)),
    (
        r"ethtool -C (\S+) adaptive-rx off rx-usecs (\d+) rx-frames (\d+)",
        lambda r, name, us, frames: _card(r, "coalescing", name, usecs=int(us), frames=int(frames), is_adaptive=False),
    ),
    (r"ethtool -C (\S+) rx-usecs (\d+)", lambda r, name, us: _card(r, "coalescing", name, usecs=int(us))),
    (r"ethtool -K (\S+) (.+)", _offloads),
    (r"cpupower -c (\S+) frequency-set -g (\w+)", _governor),
    (r"cpupower -c (\S+) idle-set -d (\d+)", _idle),
    (r"systemctl disable --now (.+)", _disabled),
    (r"IRQBALANCE_BANNED_CPULIST=(\S+)", _banned),
    (r"CPUAffinity=(\S+)", _cpu_affinity),
    (r"(cpu_dedicated_set|cpu_shared_set) = (\S+?)(, without cpu_shared_set)?", _set),
    (r"#(vcpu_pin_set|cpu_shared_set|cpu_dedicated_set)", _unset),
    (r"transparent_hugepage=(\w+)", _thp),
    (r"systemctl set-property (machine.slice) CPUWeight=(\d+)", _guests_weight),
    (r"systemctl set-property \S+ CPUQuota=", started_again.unlimited),
    (r"virsh schedinfo \S+ --live \w+_quota=-1", started_again.unlimited),
    (r"tsc=reliable", lambda r: _setting(r, "tsc", f"{_CLOCK}/current_clocksource")),
    (r"(hugepagesz=\d+K hugepages=\d+)", started_again.booted_with_pages),
    (
        r"echo (\d+) > /sys/devices/system/node/node(\d+)/hugepages/hugepages-(\d+)kB/nr_hugepages",
        started_again.huge_pages,
    ),
    (r"migratepages (\d+) all (\d+)", started_again.migrated),
    (r"swapoff -a && swapon -a", started_again.swapped_in),
    (r"virsh schedinfo (\S+) --live cpu_shares=(\d+)", started_again.weight),
    (r"echo (0) > /sys/fs/cgroup/(\S+)/cpu.idle", lambda r, _, path: started_again.weight_of(r, path, "100")),
    (rf"{_XML}: <memoryBacking><locked/></memoryBacking>", started_again.swapped_in),
    (rf"{_XML}: <iothreads>(\d+)</iothreads>", started_again.iothreads),
    (rf"{_XML}, in <cpu>: <topology sockets='(\d+)' cores='(\d+)' threads='(\d+)'/>", started_again.seen_topology),
    (rf"{_XML}, interface (\S+): <driver name='vhost'/>", started_again.vhost),
    (rf"{_XML}, interface (\S+): <driver name='vhost' queues='(\d+)'/>", started_again.tap_queues),
    (r"((?:no )?(?:isolcpus|nohz_full|rcu_nocbs|irqaffinity)(?:=\S+)?)", _argument),
)
