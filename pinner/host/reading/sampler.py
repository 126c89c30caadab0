"""Samples the counters of a host twice, and reads the details that only checks need (admin-guide/pm/cpuidle.rst,
accounting/psi.rst, scheduler/sched-stats.rst, filesystems/proc.rst 1.2.2, 1.2.8)."""

import logging
import os
import re
import resource
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from pinner.host.kernel import files, kernel, procfs
from pinner.host.kernel.cgroups import cpu_weight
from pinner.host.reading import network
from pinner.host.reading.network import read_owners
from pinner.host.reading.throttled import NO_LIMITS, read_throttled
from pinner.host.settings.coalescing import RECEIVED, with_packet_rates
from pinner.host.settings.inside.guests import Inside, Question
from pinner.host.settings.irqs import MAX_IRQS, name_of
from pinner.host.settings.row import AskGuests
from pinner.model.errors import Busy
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import is_another_pinner, is_known_placer, is_service
from pinner.model.reading import (
    GuestSoftirqs,
    HostDetails,
    HostReading,
    HostSample,
    IdleState,
    IrqCounts,
    Storage,
    ThreadTimes,
)
from pinner.model.snapshot import Snapshot

LOG = logging.getLogger(__name__)
LIVE = Path("/")
T = TypeVar("T")


def take_reading(
    root: Path,
    snapshot: Snapshot,
    seconds: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    folders: tuple[Path, ...] = (),
    ask_guests: AskGuests | None = None,
) -> HostReading:
    """Two samples, begun ``seconds`` apart (0, or captured: one). ``folders``: whose room pinner needs. Raises Busy."""
    began = time.monotonic()
    ask = ask_guests if seconds else None  # one sample of a guest's counters tells nothing
    samples = [_sample(root, snapshot, ask)]
    between = 0.0
    if root == LIVE and seconds:
        sleep(seconds)
        between = time.monotonic() - began
        samples.append(_sample(root, snapshot, ask))
    return with_rates(HostReading(snapshot, tuple(samples), between, _details(root, snapshot, folders, samples[-1])))


def with_rates(reading: HostReading) -> HostReading:
    if reading.before is None:
        return reading
    before, now = (
        {nic.index: nic.statistics[RECEIVED] for nic in sample.nics if RECEIVED in nic.statistics}
        for sample in reading.samples
    )
    return replace(reading, snapshot=with_packet_rates(reading.snapshot, before, now, reading.seconds))


class _Parts:
    """A file of an unknown kernel must not hide all others."""

    def __init__(self) -> None:
        self.unread: dict[str, str] = {}

    def read(self, name: str, reader: Callable[[], T], otherwise: T) -> T:
        try:
            return reader()
        except Busy:
            raise
        except Exception as error:
            LOG.warning("%s cannot be read: %r", name, error)
            self.unread[name] = str(error) or type(error).__name__
            return otherwise


def _sample(root: Path, snapshot: Snapshot, ask_guests: AskGuests | None) -> HostSample:
    parts, mount = _Parts(), kernel.cpuset_mount(root)
    read, guests = parts.read, [guest.pid for guest in snapshot.guests]
    times: Mapping[int, ThreadTimes] = read("thread times", lambda: read_times(root, tuple(_tids(snapshot))), {})
    # After the times of the threads: a limit counts what it took when the thread runs again, like these.
    throttled, cgroups = read("CPU limits", lambda: read_throttled(root, tuple(_guest_tids(snapshot))), NO_LIMITS)
    spare, interrupts, stolen = read("CPU times", lambda: read_cpu_times(root), _CpuTimes({}, {}, {}))
    return HostSample(
        irqs=read("interrupts", lambda: read_irq_counts(root), ()),
        nics=read("counters of network interfaces", lambda: network.read_nic_counters(root), ()),
        softnet=read("softnet_stat", lambda: network.read_softnet(root), ()),
        counters=read("network counters", lambda: network.read_counters(root), {}),
        sockets=read("UDP sockets", lambda: network.read_sockets(root), ()),
        idle=read("idle states", lambda: read_idle(root), ()),
        threads=times,
        throttled=throttled,
        cgroups=cgroups,
        spare_ms=spare,
        interrupts_ms=interrupts,
        stolen_ms=stolen,
        pressure=read("pressure", lambda: read_pressure(root, mount.folder), {}),
        swapped_kib=read("swapped memory", lambda: read_swapped(root, guests), {}),
        softirqs=read("softirqs of guests", lambda: _softirqs(snapshot, ask_guests), ()),
        unread=parts.unread,
    )


def _softirqs(snapshot: Snapshot, ask_guests: AskGuests | None) -> tuple[GuestSoftirqs, ...]:
    answers = ask_guests(snapshot.guests, {"softirqs": SOFTIRQS})["softirqs"] if ask_guests else ()
    return tuple(answer for answer in answers if isinstance(answer, GuestSoftirqs))


def _details(root: Path, snapshot: Snapshot, folders: tuple[Path, ...], sample: HostSample) -> HostDetails:
    parts = _Parts()
    read = parts.read
    dropping = {socket.inode for socket in sample.sockets if socket.drops}
    return HostDetails(
        nics=read("network interfaces", lambda: network.read_nics(root, snapshot.topology.devices), ()),
        settings=read("settings", lambda: read_settings(root), {}),
        storage=read("storage", lambda: read_storage(folders), ()),
        weights=read("weights", lambda: read_weights(root, snapshot.guests), {}),
        are_of_root=read("users", lambda: {pid: procfs.is_of_root(root, pid) for pid in _placers(snapshot)}, {}),
        socket_owners=read("programs of UDP sockets", lambda: read_owners(root, dropping), {}),
        page_kib=resource.getpagesize() // 1024,
        unread=parts.unread,
    )


def _placers(snapshot: Snapshot) -> Iterator[int]:
    return (process.pid for process in snapshot.processes if is_known_placer(process) or is_another_pinner(process))


def _tids(snapshot: Snapshot) -> Iterator[int]:
    """Those of the kernel, of guests, and of the programs in guests' units, such as virtiofsd."""
    guests = {guest.pid for guest in snapshot.guests}
    units = {process.unit for process in snapshot.processes if process.pid in guests and not is_service(process.unit)}
    others = (each for each in snapshot.processes if each.kernel or (each.unit and each.unit in units))
    yield from (thread.tid for process in others for thread in process.threads)
    yield from _guest_tids(snapshot)


def _guest_tids(snapshot: Snapshot) -> Iterator[int]:
    guests = {guest.pid for guest in snapshot.guests}
    of_guests = (process for process in snapshot.processes if process.pid in guests)
    yield from (thread.tid for process in of_guests for thread in process.threads)
    yield from (thread.tid for guest in snapshot.guests for thread in guest.vhost_threads)


SETTINGS = (
    "proc/sys/kernel/sched_rt_period_us",
    *(
        f"proc/sys/net/core/{name}"
        for name in ("netdev_budget_usecs", "rmem_default", "rps_sock_flow_entries", "wmem_default", "wmem_max")
    ),
    "proc/sys/net/ipv4/udp_mem",
    *(f"sys/kernel/mm/ksm/{name}" for name in ("run", "pages_sharing")),
    *(f"sys/kernel/mm/transparent_hugepage/{name}" for name in ("enabled", "defrag")),
    *(f"sys/devices/system/clocksource/clocksource0/{name}_clocksource" for name in ("current", "available")),
)
_WEIGHTS = 1024


def read_settings(root: Path) -> Mapping[str, str]:
    texts = {path: files.text(root / path) for path in SETTINGS}
    return {path: text for path, text in texts.items() if text is not None}


def read_weights(root: Path, guests: Iterable[Guest]) -> Mapping[str, int]:
    mount = kernel.mount_of(root, "cpu")
    units = [guest.cgroups[-1].path for guest in guests if guest.cgroups] if mount.version == "v2" else []
    weights = {path: cpu_weight(mount, path) for path in units[:_WEIGHTS]}
    return {path: weight for path, weight in weights.items() if weight is not None}


def read_storage(folders: Iterable[Path]) -> tuple[Storage, ...]:
    rooms = []
    for folder in folders:
        try:
            state = os.statvfs(folder)
        except OSError:
            continue
        block = state.f_frsize
        rooms.append(Storage(str(folder), state.f_blocks * block // 1024, state.f_bavail * block // 1024))
    return tuple(rooms)


_RESOURCES = ("cpu", "memory", "io")


def read_idle(root: Path) -> tuple[IdleState, ...]:
    folder = root / "sys/devices/system/cpu"
    return tuple(
        IdleState(
            cpu=cpu,
            number=number,
            name=files.text(state / "name") or state.name,
            latency_us=files.number(state / "latency") or 0,
            is_disabled=bool(files.number(state / "disable")),
            time_us=files.number(state / "time") or 0,
        )
        for cpu, path in files.numbered(folder, "cpu").items()
        for number, state in files.numbered(path / "cpuidle", "state").items()
    )


class _CpuTimes(NamedTuple):
    """In milliseconds, by CPU."""

    spare: Mapping[int, int]
    """Without a thread: idle, waiting for disks, in interrupts, stolen."""
    interrupts: Mapping[int, int]
    stolen: Mapping[int, int]


def read_cpu_times(root: Path) -> _CpuTimes:
    ticks = procfs.cpu_ticks(root)

    def ms(time: Callable[[procfs.CpuTicks], int]) -> Mapping[int, int]:
        return {cpu: time(each) * 1000 // procfs.HERTZ for cpu, each in ticks.items()}

    return _CpuTimes(
        ms(lambda each: each.idle + each.iowait + each.irq + each.softirq + each.steal),
        ms(lambda each: each.irq + each.softirq),
        ms(lambda each: each.steal),
    )


def read_pressure(root: Path, mount: Path) -> Mapping[str, float]:
    """Stall of the last ten seconds in per cent, by resource and kind. ``mount`` is cgroup v2's."""
    paths = {resource: root / "proc/pressure" / resource for resource in _RESOURCES}
    paths |= {"system.slice.cpu": mount / "system.slice/cpu.pressure"}
    return {f"{name}.{kind}": stall.percent for name in paths for kind, stall in procfs.stalls(paths[name]).items()}


def read_times(root: Path, tids: Collection[int]) -> Mapping[int, ThreadTimes]:
    """Ended threads, and all without schedstat, are left out."""
    times_by_tid = {}
    for tid in tids:
        try:
            # /proc/TID is there for each thread, though it is not listed.
            times = procfs.parse_schedstat(files.read(f"{root}/proc/{tid}/schedstat"))
        except OSError:
            continue
        if times:
            times_by_tid[tid] = ThreadTimes(*times)
    return times_by_tid


def read_swapped(root: Path, pids: Collection[int]) -> Mapping[int, int]:
    """KiB (VmSwap); ended processes are left out."""
    swapped = {}
    for pid in pids:
        for line in (files.text(root / "proc" / str(pid) / "status") or "").splitlines():
            name, _, value = line.partition(":")
            if name == "VmSwap" and value.split()[:1] and value.split()[0].isdecimal():
                swapped[pid] = int(value.split()[0])
    return swapped


_CPU = re.compile(r"CPU(\d{1,5})")


class _Row(NamedTuple):
    counts: Mapping[int, int]
    text: str
    """Chip, kind and drivers' names."""


def read_irq_counts(root: Path) -> tuple[IrqCounts, ...]:
    rows = parse_interrupts(files.text(root / "proc/interrupts") or "")
    return tuple(
        IrqCounts(number, name_of(root, number) or " ".join(rows[number].text.split()[2:]), rows[number].counts)
        for number in sorted(rows)[:MAX_IRQS]
    )


def parse_interrupts(text: str) -> dict[int, _Row]:
    """The heading names the online CPUs; ids may have gaps."""
    lines = text.splitlines()
    cpus = [int(match[1]) for match in _CPU.finditer(lines[0])] if lines else []
    return {number: row for line in lines[1:] for number, row in _row(line, cpus)}


def _row(line: str, cpus: list[int]) -> Iterator[tuple[int, _Row]]:
    label, colon, rest = line.partition(":")
    words = rest.split(None, len(cpus))
    counts = words[: len(cpus)]
    if colon and label.strip().isdecimal() and len(counts) == len(cpus) and all(map(str.isdecimal, counts)):
        taken = {cpu: int(count) for cpu, count in zip(cpus, counts, strict=True) if count != "0"}
        yield int(label), _Row(taken, words[len(cpus)].strip() if len(words) > len(cpus) else "")


MAX_SOFTIRQS = 1 << 18
"""Bytes of a guest's /proc/softirqs."""
_SOFTIRQS_TABLE = "/proc/softirqs"
_VCPU = re.compile(r"CPU([0-9]{1,5})")
_RECEIVED_ROW = re.compile(r"^ *NET_RX:((?: +[0-9]{1,15})+) *$", re.MULTILINE)


def _received(inside: Inside) -> GuestSoftirqs:
    """Which vCPUs receive packets, as the guest's agent tells it (/proc/softirqs)."""
    text = inside.agent.read(_SOFTIRQS_TABLE, MAX_SOFTIRQS)
    row = _RECEIVED_ROW.search(text)
    vcpus = [int(vcpu) for vcpu in _VCPU.findall(text.partition("\n")[0])]
    counts = [int(count) for count in row[1].split()] if row else []
    if not counts or not len({*vcpus}) == len(vcpus) == len(counts):
        raise inside.agent.strange(_SOFTIRQS_TABLE, text)
    received = {vcpu: count for vcpu, count in zip(vcpus, counts, strict=True) if count}
    # The kernel names each possible CPU: those that libvirt did not give to the guest have counted nothing.
    if any(vcpu >= len(inside.guest.vcpus) for vcpu in received):
        raise inside.agent.strange(_SOFTIRQS_TABLE, text)
    return GuestSoftirqs(inside.guest.uuid, inside.guest.name, inside.boot, received)


SOFTIRQS = Question(GuestSoftirqs, _received)
