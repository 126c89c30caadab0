"""make captures: saves lab hosts in tests/data/machines, where the tests of the inventory read them.

Each capture is made by `pinner capture --scrub` and becomes one archive.
"""

import io
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from private_libvirt import guest_xml

from lab.errors import LabError
from lab.host import LabHost
from lab.pool import Pool

FOLDER = Path(__file__).parents[2] / "tests/data/machines"
_GUEST = "virsh -q create --paused /dev/stdin"
_DAEMON = "systemd-run -q --unit=daemon -p CPUAffinity=2 sleep 1000"
_HUGEPAGES = "echo 8 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
_PARTITION = (
    "cd /sys/fs/cgroup && echo +cpuset > cgroup.subtree_control && mkdir partition && cd partition && "
    "echo 12-15 > cpuset.cpus && echo isolated > cpuset.cpus.partition && grep -qx isolated cpuset.cpus.partition"
)
_OFFLINE = "for cpu in 3 12 13; do echo 0 > /sys/devices/system/cpu/cpu$cpu/online; done"


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture's name, the topology of its host, and the shell command that prepares the host."""

    name: str
    topology: str
    prepare: str = "true"


CAPTURES = (
    Capture("two-socket", "two-socket", _DAEMON),
    Capture("partition", "two-socket", f"{_HUGEPAGES} && {_PARTITION}"),
    Capture("offline", "two-socket", _OFFLINE),
    Capture("isolated-boot", "isolated-boot"),
    Capture("interleaved", "interleaved"),
    Capture("lopsided", "lopsided"),
    Capture("big", "big"),
)
"""Captures of one host follow each other, so that it boots once; it keeps the huge pages of an earlier capture."""


def main(names: list[str]) -> int:
    """Save the named captures, or all of them. Returns the exit status."""
    if unknown := set(names) - {each.name for each in CAPTURES}:
        print(f"captures: unknown: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        with Pool(limit=1) as pool:
            for each in CAPTURES:
                if not names or each.name in names:
                    path = save(pool.host(each.topology), each)
                    print(f"{path.stat().st_size >> 10:6} KiB  {path.name}", flush=True)
    except LabError as error:
        print(f"captures: {error}", file=sys.stderr)
        return 2
    return 0


def save(host: LabHost, capture: Capture) -> Path:
    """Prepare the host and save it. Returns the archive's path. Raises LabError."""
    host.run(capture.prepare)
    with _guest(host):
        host.run(f"cd /tmp && pinner capture {capture.name} --scrub")
    packed = host.run(f"cd /tmp && tar -cz {capture.name} && rm -r {capture.name}").output
    path = FOLDER / f"{capture.name}.tar.bz2"
    _repack(packed, path)
    return path


@contextmanager
def _guest(host: LabHost) -> Iterator[None]:
    """A paused guest, so that the capture has the threads of a QEMU process."""
    host.run(_GUEST, stdin=guest_xml("guest", memory_mib=32))
    yield
    host.run("virsh -q destroy guest")


def _repack(packed: bytes, path: Path) -> None:
    """Write the archive anew without owners, times and modes, which say nothing about the host."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as source, tarfile.open(path, "w:bz2") as archive:
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = "root"
            member.mode = 0o755 if member.isdir() else 0o644
            archive.addfile(member, source.extractfile(member) if member.isfile() else None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
