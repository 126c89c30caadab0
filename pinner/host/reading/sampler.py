"""Samples the counters and settings of a host twice."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from pinner.host.kernel import kernel, procfs
from pinner.host.reading import cpus, ethtool, irqs, network, nics, settings
from pinner.host.settings import irqbalance
from pinner.model.errors import Busy
from pinner.model.processes.placers import is_another_pinner, is_known_placer
from pinner.model.reading import HostReading, HostSample
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
    """The snapshot with two samples that begin ``seconds`` apart (0: one sample), read below ``root``.

    A captured machine has one sample. ``folders`` are those whose room pinner needs. What cannot be read is named in
    HostSample.unread, and does not end the reading.
    """
    began = clock()
    first = read_sample(root, snapshot, folders)
    if root != LIVE or not seconds:
        return HostReading(snapshot, (first,))
    sleep(seconds)
    between = clock() - began
    return HostReading(snapshot, (first, read_sample(root, snapshot, folders)), between)


def read_sample(root: Path, snapshot: Snapshot, folders: tuple[Path, ...] = ()) -> HostSample:
    """One sample. Raises Busy where no file can be opened."""
    unread: dict[str, str] = {}

    def part(name: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except Busy:
            raise
        except Exception as error:  # a file of an unknown kernel must not hide all others
            LOG.warning("%s cannot be read: %r", name, error)
            unread[name] = str(error) or type(error).__name__
            return otherwise

    details = ethtool.with_details if root == LIVE else lambda nic: nic
    mount = kernel.cpuset_mount(root)
    units = tuple(group.path for guest in snapshot.guests for group in guest.cgroups)
    return HostSample(
        irqs=part("interrupts", lambda: irqs.read_irqs(root), ()),
        nics=part("network interfaces", lambda: nics.read_nics(root, details), ()),
        softnet=part("softnet_stat", lambda: network.read_softnet(root), ()),
        counters=part("network counters", lambda: network.read_counters(root), {}),
        settings=part("settings", lambda: settings.read_settings(root), {}),
        sockets=part("UDP sockets", lambda: network.read_sockets(root), ()),
        idle=part("idle states", lambda: cpus.read_idle(root), ()),
        threads=part("thread times", lambda: cpus.read_times(root, tuple(_tids(snapshot))), {}),
        spare_ms=part("CPU times", lambda: cpus.read_spare(root), {}),
        pressure=part("pressure", lambda: cpus.read_pressure(root, mount.folder), {}),
        swapped_kib=part("swapped memory", lambda: cpus.read_swapped(root, [each.pid for each in snapshot.guests]), {}),
        storage=part("storage", lambda: settings.read_storage(folders), ()),
        balancers=part("irqbalance", lambda: irqbalance.read_irqbalance(root, snapshot.processes), ()),
        weights=part("weights", lambda: settings.read_weights(mount.folder, units), {})
        if mount.version == "v2"
        else {},
        are_of_root=part("users", lambda: {pid: procfs.is_of_root(root, pid) for pid in _placers(snapshot)}, {}),
        unread=unread,
    )


def _placers(snapshot: Snapshot) -> Iterator[int]:
    """The processes that may place threads, by their names."""
    return (each.pid for each in snapshot.processes if is_known_placer(each) or is_another_pinner(each))


def _tids(snapshot: Snapshot) -> Iterator[int]:
    """The threads of guests and the kernel."""
    guests = {guest.pid for guest in snapshot.guests}
    for process in snapshot.processes:
        if process.kernel or process.pid in guests:
            yield from (thread.tid for thread in process.threads)
    for guest in snapshot.guests:
        yield from (thread.tid for thread in guest.vhost_threads)
