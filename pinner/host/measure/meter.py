"""Counts what the measures are made of: cheap enough for every few seconds."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pinner.host.kernel import cgroups, files, procfs
from pinner.host.kernel.kernel import mount_of
from pinner.host.processes import qemu
from pinner.host.reading.network import read_softnet
from pinner.host.reading.throttled import own_ns
from pinner.host.virt.guests import ActiveDomain
from pinner.model.change import ThreadKey
from pinner.model.errors import Gone, PinnerError
from pinner.model.kinds import TargetKind
from pinner.model.machine.process import cgroup_with_parents
from pinner.model.outcome.measures import HOST, Counts, Pings, ThreadCount
from pinner.model.settings.cpu_weights import SLICE

_RX_LOSSES = ("rx_dropped", "rx_missed_errors", "rx_fifo_errors", "tx_dropped")
"""A packet found no room (ABI/testing/sysfs-class-net-statistics)."""

_TAP_LOSSES = ("rx_dropped", "tx_dropped")

_TRAFFIC = {
    "packets_in": ("tx_packets", 1),
    "packets_out": ("rx_packets", 1),
    "bits_in": ("tx_bytes", 8),
    "bits_out": ("rx_bytes", 8),
}
"""Series to the counter of a tap and its factor. The host transmits what the guest receives."""

_SWAPPED = {"rx": "tx", "tx": "rx"}

_LIST_SECONDS = 30.0
"""A new guest is measured later at most by that."""


class Domains(Protocol):
    users: Mapping[str, int | None]

    def active(self) -> list[ActiveDomain]: ...


@dataclass(frozen=True, slots=True)
class MeteredGuest:
    """It stays the same until QEMU ends, or an interface is plugged."""

    uuid: str
    name: str
    pid: int
    started: int
    """QEMU's start, in clock ticks after boot."""
    vhost: tuple[ThreadKey, ...]
    taps: tuple[str, ...]


def metered_guests(
    root: Path, domains: Iterable[ActiveDomain], users: Mapping[str, int | None]
) -> tuple[MeteredGuest, ...]:
    """Those whose QEMU runs. ``users`` as in qemu.find. Reads /proc once."""
    known = {domain.uuid: domain for domain in domains}
    processes = qemu.find(root, known.keys(), users)
    metered = []
    for uuid, pid in sorted(processes.qemus.items()):
        try:
            started = procfs.started(root, pid)
        except Gone:
            continue
        vhost = tuple(ThreadKey(thread.tid, thread.started) for thread in processes.vhost_threads.get(pid, ()))
        taps = tuple(tap.name for tap in known[uuid].xml.taps if tap.name)
        metered.append(MeteredGuest(uuid, known[uuid].name, pid, started, vhost, taps))
    return tuple(metered)


PingsOf = Callable[[Iterable[MeteredGuest]], Mapping[str, Pings]]
"""The pings by UUID, of guests that answer."""


def no_pings(_: Iterable[MeteredGuest]) -> Mapping[str, Pings]:
    return {}


class HostMeter:
    """Asks libvirt once in a while: a count reads only files."""

    def __init__(
        self, root: Path, libvirt: Domains, clock: Callable[[], float] = time.monotonic, pings_of: PingsOf = no_pings
    ) -> None:
        self._root = root
        self._libvirt = libvirt
        self._clock = clock
        self._pings_of = pings_of
        self._guests: tuple[MeteredGuest, ...] = ()
        self._cgroups: tuple[str, ...] = ()
        self._listed = -_LIST_SECONDS

    def __call__(self) -> tuple[Counts, ...]:
        """While libvirt does not answer, the known guests are counted. Raises Busy."""
        if self._clock() - self._listed >= _LIST_SECONDS:
            self._listed = self._clock()
            with suppress(PinnerError):
                domains = self._libvirt.active()
                self._guests = metered_guests(self._root, domains, self._libvirt.users)
                self._cgroups = guest_cgroups(self._root, (guest.pid for guest in self._guests))
        all_counts = [count_host(self._root, self._clock, self._cgroups)]
        pings = self._pings_of(self._guests)
        for guest in self._guests:
            with suppress(Gone):
                counts = count_guest(self._root, guest, self._clock)
                all_counts.append(replace(counts, pings=pings.get(guest.uuid)))
        return tuple(all_counts)


def count_guest(root: Path, guest: MeteredGuest, clock: Callable[[], float] = time.monotonic) -> Counts:
    """Raises Gone where its QEMU has ended."""
    if procfs.started(root, guest.pid) != guest.started:
        raise Gone(f"guest {guest.name}")
    at, threads = clock(), dict(_threads(root, guest))
    drops = {f"{tap} {name}": value for tap in guest.taps for name, value in _statistics(root, tap, _TAP_LOSSES)}
    return Counts(guest.uuid, guest.name, at, threads, {"drops": drops, **_traffic(root, guest.taps)})


def count_host(root: Path, clock: Callable[[], float] = time.monotonic, cgroups: Iterable[str] = ()) -> Counts:
    """What this kernel does not count is left out. ``cgroups``: those of guests, and above them."""
    totals = {
        "use_host": _used(root),
        "pressure": _pressure(root),
        **_softnet(root),
        "nic_drops": {
            f"{nic} {name}": value
            for nic in files.names(root / "sys/class/net")
            if (root / "sys/class/net" / nic / "device").exists()
            for name, value in _statistics(root, nic, _RX_LOSSES)
        },
        "throttled": _throttled(root, cgroups),
    }
    return Counts(HOST, "", clock(), {}, totals)


def _threads(root: Path, guest: MeteredGuest) -> Iterator[tuple[ThreadKey, ThreadCount]]:
    folder = f"{root}/proc/{guest.pid}/task"
    for tid in files.names(folder):
        try:
            stat = procfs.parse_stat(files.read(f"{folder}/{tid}/stat"))
            times = procfs.parse_schedstat(files.read(f"{folder}/{tid}/schedstat"))
        except (OSError, ValueError, IndexError):
            continue
        if times:
            yield ThreadKey(int(tid), stat.started), ThreadCount(_role(stat.name), *times)
    for key in guest.vhost:
        try:
            times = procfs.parse_schedstat(files.read(f"{root}/proc/{key.tid}/schedstat"))
        except OSError:
            continue
        if times:
            yield key, ThreadCount("vhost", *times)


def _role(name: str) -> TargetKind:
    """Since Linux 6.4, vhost threads are threads of QEMU."""
    return "vhost" if name.startswith("vhost-") else qemu.role(name)[0]


def _statistics(root: Path, interface: str, names: Iterable[str]) -> Iterator[tuple[str, float]]:
    for name, count in files.counts(root / "sys/class/net" / interface / "statistics", names).items():
        yield name, float(count)


def _traffic(root: Path, taps: Iterable[str]) -> dict[str, dict[str, float]]:
    traffic: dict[str, dict[str, float]] = {series: {} for series in _TRAFFIC}
    for tap in taps:
        counts = dict(_statistics(root, tap, [counter for counter, _ in _TRAFFIC.values()]))
        if (root / "sys/class/net" / tap / "macvtap").exists():  # it counts what the guest itself receives
            counts = {_SWAPPED[counter[:2]] + counter[2:]: count for counter, count in counts.items()}
        for series, (counter, factor) in _TRAFFIC.items():
            if counter in counts:
                traffic[series][tap] = factor * counts[counter]
    return traffic


def _used(root: Path) -> dict[str, float]:
    """Hundredths of a second, so that a rate is percent."""
    return {
        f"cpu{cpu}": (ticks.user + ticks.nice + ticks.system + ticks.irq + ticks.softirq) * 100 / procfs.HERTZ
        for cpu, ticks in procfs.cpu_ticks(root).items()
    }


def _pressure(root: Path) -> dict[str, float]:
    some = procfs.stalls(root / "proc/pressure/cpu").get("some")
    return {} if some is None else {"some": some.total_us / 1000}


def _softnet(root: Path) -> dict[str, dict[str, float]]:
    rows = read_softnet(root)
    return {
        "softnet_drops": {f"cpu{row.cpu}": float(row.dropped) for row in rows},
        "squeezed": {f"cpu{row.cpu}": float(row.squeezed) for row in rows},
    }


def guest_cgroups(root: Path, qemus: Iterable[int]) -> tuple[str, ...]:
    """Below the mount: those of guests, with all parts, and those above them."""
    mount = mount_of(root, "cpu")
    paths = {SLICE}
    for pid in qemus:
        for below, _ in cgroups.parts_of_guest(root, mount, pid, "cpu"):
            paths.update(cgroup_with_parents(str(below.relative_to(mount.folder))))
    return tuple(sorted(paths))


def _throttled(root: Path, paths: Iterable[str]) -> dict[str, float]:
    """Milliseconds. The kernel counts in the cgroup that has the limit."""
    mount = mount_of(root, "cpu")
    stopped = ((path, own_ns(mount, path)) for path in paths) if mount.version != "none" else ()
    return {path: nanoseconds / 1e6 for path, nanoseconds in stopped if nanoseconds is not None}
