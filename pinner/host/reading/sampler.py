"""Samples the counters of a host twice, and reads the details that only checks need."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pinner.host.kernel import files, kernel, procfs
from pinner.host.reading import cpus, network, nics
from pinner.model.errors import Busy
from pinner.model.machine.process import is_another_pinner, is_known_placer
from pinner.model.reading import HostDetails, HostReading, HostSample, Storage
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
    clock: Callable[[], float] = time.monotonic,
    folders: tuple[Path, ...] = (),
) -> HostReading:
    """Two samples that begin ``seconds`` apart (0, and on a captured machine: one). ``folders`` are those whose room
    pinner needs. What cannot be read is named in ``unread``. Raises Busy."""
    began = clock()
    samples = [_sample(root, snapshot)]
    between = 0.0
    if root == LIVE and seconds:
        sleep(seconds)
        between = clock() - began
        samples.append(_sample(root, snapshot))
    reading = HostReading(snapshot, tuple(samples), between, _details(root, snapshot, folders))
    return replace(reading, snapshot=with_packet_rates(reading))


def with_packet_rates(reading: HostReading) -> Snapshot:
    """The cards have the packets a second of the samples."""
    snapshot, before = reading.snapshot, reading.before
    if before is None or snapshot.coalescing is None:
        return snapshot
    packets = [{nic.index: nic.statistics.get("rx_packets", 0) for nic in each.nics} for each in (before, reading.now)]
    cards = tuple(
        replace(card, rate=round(max(now - packets[0].get(card.index, now), 0) / reading.seconds, 1))
        for card in snapshot.coalescing
        for now in [packets[1].get(card.index, 0)]
    )
    return replace(snapshot, coalescing=cards)


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


def _sample(root: Path, snapshot: Snapshot) -> HostSample:
    parts, mount = _Parts(), kernel.cpuset_mount(root)
    read, guests = parts.read, [guest.pid for guest in snapshot.guests]
    return HostSample(
        irqs=read("interrupts", lambda: cpus.read_irq_counts(root), ()),
        nics=read("counters of network interfaces", lambda: nics.read_nic_counters(root), ()),
        softnet=read("softnet_stat", lambda: network.read_softnet(root), ()),
        counters=read("network counters", lambda: network.read_counters(root), {}),
        sockets=read("UDP sockets", lambda: network.read_sockets(root), ()),
        idle=read("idle states", lambda: cpus.read_idle(root), ()),
        threads=read("thread times", lambda: cpus.read_times(root, tuple(_tids(snapshot))), {}),
        spare_ms=read("CPU times", lambda: cpus.read_spare(root), {}),
        pressure=read("pressure", lambda: cpus.read_pressure(root, mount.folder), {}),
        swapped_kib=read("swapped memory", lambda: cpus.read_swapped(root, guests), {}),
        unread=parts.unread,
    )


def _details(root: Path, snapshot: Snapshot, folders: tuple[Path, ...]) -> HostDetails:
    parts, mount = _Parts(), kernel.cpuset_mount(root)
    read, is_v2 = parts.read, mount.version == "v2"
    units = [group.path for guest in snapshot.guests for group in guest.cgroups] if is_v2 else []
    return HostDetails(
        nics=read("network interfaces", lambda: nics.read_nics(root, snapshot.topology.devices), ()),
        settings=read("settings", lambda: read_settings(root), {}),
        storage=read("storage", lambda: read_storage(folders), ()),
        weights=read("weights", lambda: read_weights(mount.folder, units), {}),
        are_of_root=read("users", lambda: {pid: procfs.is_of_root(root, pid) for pid in _placers(snapshot)}, {}),
        unread=parts.unread,
    )


def _placers(snapshot: Snapshot) -> Iterator[int]:
    return (each.pid for each in snapshot.processes if is_known_placer(each) or is_another_pinner(each))


def _tids(snapshot: Snapshot) -> Iterator[int]:
    guests = {guest.pid for guest in snapshot.guests}
    for process in snapshot.processes:
        if process.kernel or process.pid in guests:
            yield from (thread.tid for thread in process.threads)
    for guest in snapshot.guests:
        yield from (thread.tid for thread in guest.vhost_threads)


SETTINGS = (
    "proc/sys/kernel/sched_rt_period_us",
    "proc/sys/net/core/rps_sock_flow_entries",
    *(f"sys/kernel/mm/ksm/{name}" for name in ("run", "pages_sharing")),
    *(f"sys/kernel/mm/transparent_hugepage/{name}" for name in ("enabled", "defrag")),
    *(f"sys/devices/system/clocksource/clocksource0/{name}_clocksource" for name in ("current", "available")),
)
_WEIGHTS = 1024


def read_settings(root: Path) -> Mapping[str, str]:
    """By path."""
    texts = {path: files.text(root / path) for path in SETTINGS}
    return {path: text for path, text in texts.items() if text is not None}


def read_weights(mount: Path, units: Iterable[str]) -> Mapping[str, int]:
    """cpu.weight by path below the mount; empty without cgroup v2."""
    weights = {path: files.number(mount / path / "cpu.weight") for path in list(dict.fromkeys(units))[:_WEIGHTS]}
    return {path: weight for path, weight in weights.items() if weight is not None}


def read_storage(folders: Iterable[Path]) -> tuple[Storage, ...]:
    """A missing folder is left out."""
    rooms = []
    for folder in folders:
        try:
            state = os.statvfs(folder)
        except OSError:
            continue
        block = state.f_frsize
        rooms.append(Storage(str(folder), state.f_blocks * block // 1024, state.f_bavail * block // 1024))
    return tuple(rooms)
