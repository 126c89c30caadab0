"""How long CPU limits stopped the threads of guests (scheduler/sched-bwc.rst, admin-guide/cgroup-v2.rst). The kernel
counts in the cgroup that has the limit: neither the cgroups below nor those above have the time. Since Linux 6.7,
cpu.stat.local of a cgroup has the time of its own limit and of those above it."""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

from pinner.host.kernel import files
from pinner.host.kernel.cgroups import below, path_of
from pinner.host.kernel.kernel import Mount, mount_of
from pinner.model.machine.process import DEFAULT_PERIOD_US, UNITS, CpuQuota, cgroup_with_parents
from pinner.model.reading import SERVICES, Throttled

_STATS = {"v1": ("throttled_time", 1), "v2": ("throttled_usec", 1000)}
"""The counter of cpu.stat and cpu.stat.local, and its nanoseconds."""

_Limits = tuple[Mapping[str, Throttled], Mapping[int, str]]
NO_LIMITS: _Limits = {}, {}


def read_throttled(root: Path, tids: Collection[int]) -> _Limits:
    """HostSample.throttled and .cgroups. Ended threads, and those that no limit ever stopped, are left out."""
    mount = mount_of(root, "cpu")
    read = cache(lambda path: throttled(mount, path))
    found = dict(_of_services(mount))
    cgroups: dict[int, str] = {}
    for tid in tids if mount.version != "none" else ():
        try:
            path = path_of(root, tid, "cpu").strip("/")
        except OSError:
            continue
        limits = {above: times for above in cgroup_with_parents(path) if (times := read(above)) and times.own_ns}
        if limits and (own := read(path)):
            found |= {**limits, path: own}
            cgroups[tid] = path
    return found, cgroups


def _of_services(mount: Mount) -> Iterator[tuple[str, Throttled]]:
    """The host's units that a limit of their own ever stopped."""
    folder = mount.folder / SERVICES
    units = (folder, *below(folder, lambda path: path.suffix == ".slice")) if mount.version != "none" else ()
    for path in (str(unit.relative_to(mount.folder)) for unit in units if unit.suffix in UNITS):
        if own_ns(mount, path) and (times := throttled(mount, path)):
            yield path, times


def throttled(mount: Mount, path: str) -> Throttled | None:
    """None for a cgroup without the controller."""
    folder = mount.folder / path
    own = own_ns(mount, path)
    if own is None:
        return None
    return Throttled(_quota(folder, mount), own, _nanoseconds(folder / "cpu.stat.local", mount))


def own_ns(mount: Mount, path: str) -> int | None:
    """Throttled.own_ns; None for a cgroup without the controller."""
    return _nanoseconds(mount.folder / path / "cpu.stat", mount)


def _nanoseconds(file: Path, mount: Mount) -> int | None:
    name, factor = _STATS[mount.version]
    for line in (files.text(file) or "").splitlines():
        words = line.split()
        if words[:1] == [name] and len(words) == 2 and words[1].isdecimal():
            return int(words[1]) * factor
    return None


def _quota(folder: Path, mount: Mount) -> CpuQuota | None:
    """cpu.max is ``max 100000`` without a limit, cpu.cfs_quota_us is -1."""
    if mount.version == "v1":
        quota, period = files.number(folder / "cpu.cfs_quota_us"), files.number(folder / "cpu.cfs_period_us")
    else:
        words = [int(word) if word.isdecimal() else None for word in (files.text(folder / "cpu.max") or "").split()]
        quota, period = [*words, None, None][:2]
    return None if quota is None else CpuQuota(quota, period or DEFAULT_PERIOD_US)
