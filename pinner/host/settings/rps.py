"""Receive packet steering (RPS): the CPUs of each receive queue (networking/scaling.rst)."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pinner.host.kernel import beneath, files
from pinner.host.settings import cards
from pinner.host.settings.row import HostRow, written
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Gone, Invalid
from pinner.model.settings.cards import RpsQueue

MAX_QUEUES = 1024
_FOLDER = "sys/class/net"
_FILE = "rps_cpus"
_EXPECTED = "the name and index of an interface, and the number of a queue"
_HINTS = {
    errno.EROFS: "; allow it with ReadWritePaths=/sys/devices in the section [Service] of `systemctl edit pinner-agent`"
}
_ENDED = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)


def read_rps(root: Path) -> tuple[RpsQueue, ...] | None:
    folder = root / _FOLDER
    if not folder.is_dir():
        return None
    rps_queues = []
    for name in cards.names(folder):
        index = files.number(folder / name / "ifindex")
        queues = files.numbered(folder / name / "queues", "rx-") if index is not None else {}
        for number, queue in list(queues.items())[:MAX_QUEUES]:
            if index is not None and (cpus := files.cpu_mask(queue / _FILE)) is not None:
                rps_queues.append(RpsQueue(name, index, number, cpus))
    return tuple(rps_queues)


def cpus_of(root: Path, target: Target) -> CpuSet:
    with _queue(root, target) as folder:
        return _read(folder, target)


def set_cpus(root: Path, target: Target, cpus: CpuSet) -> None:
    """An empty set turns it off."""
    with _queue(root, target) as folder, written(target, cpus, lambda: _read(folder, target), _HINTS, _ENDED):
        beneath.write(folder, _FILE, cpus.mask())


def _read(folder: int, target: Target) -> CpuSet:
    cpus = files.parse_mask(beneath.read(folder, _FILE) or "")
    if cpus is None:
        raise Gone(str(target))
    return cpus


@contextmanager
def _queue(root: Path, target: Target) -> Iterator[int]:
    """By index, whatever its name is now. Raises Gone, Invalid."""
    if target.part is None:
        raise Invalid("rps", str(target)[:80], _EXPECTED)
    interface = cards.named(root / _FOLDER, target, _EXPECTED)
    index = target.owner.partition(" ")[2]
    top = root / "sys"
    # The interface is a link to the device's folder, and both are in sysfs.
    path = os.path.relpath(os.path.realpath(root / _FOLDER / interface), os.path.realpath(top))
    try:
        with beneath.folder(top, path) as folder:
            if beneath.read(folder, "ifindex") != index:
                raise Gone(str(target))
            queue = beneath.open_folder(folder, f"queues/rx-{target.part}")
    except (OSError, Invalid) as error:
        if isinstance(error, OSError):
            files.known(error)
        raise Gone(str(target)) from None
    try:
        yield queue
    finally:
        os.close(queue)


ROW: HostRow[CpuSet] = HostRow(
    lambda access, target: cpus_of(access.root, target),
    lambda access, target, state: set_cpus(access.root, target, state),
    lambda facts: read_rps(facts.root),
)
