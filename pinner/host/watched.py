"""Which processes and files of a host are watched: found anew when guests came or went."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pinner.host import cpusets, files, qemu
from pinner.host.kernel import Mount
from pinner.model.change import TargetKind


class Owner(NamedTuple):
    """The part of a guest that a cpuset is for."""

    guest: str
    kind: TargetKind
    part: int | None


@dataclass(frozen=True, slots=True)
class Watched:
    """What ``find`` found."""

    qemus: Mapping[int, str]
    """QEMU's process ids with their guest's UUID."""
    named: Mapping[int, str]
    """Process ids with the name that they were asked for by."""
    files: Mapping[str, Owner | None]
    """The files of cpusets, each with the part of a guest that it belongs to."""


def find(root: Path, mount: Mount, guests: Collection[str], names: Collection[str]) -> Watched:
    """What is to be watched for these guests (by UUID) and for the processes of these names."""
    qemus = {pid: uuid for uuid, pid in qemu.look(root, guests).qemus.items()} if guests else {}
    named = {pid: name for pid, name in names_of_all(root) if name in names} if names else {}
    found: dict[str, Owner | None] = {}
    for pid in (*qemus, *named):
        found |= dict.fromkeys(_files(cpusets.around(root, mount, pid)))
    for pid, uuid in qemus.items():
        found |= _of_guest(root, mount, pid, uuid)
    return Watched(qemus, named, found)


def misplaced(root: Path, pid: int, tids: Iterable[int]) -> tuple[str, ...]:
    """The names of those threads born to a QEMU that may not be where they belong: a vCPU or iothread that was plugged
    in, and a thread of the emulator that was born to one of these, whose mask it has then. Those that ended are left
    out."""
    found = []
    for tid in tids:
        try:
            name = files.decode(files.read(f"{root}/proc/{pid}/task/{tid}/comm")).strip()
            if not qemu.is_emulator(name) or os.sched_getaffinity(tid) != os.sched_getaffinity(pid):
                found.append(name)
        except OSError:
            continue
    return tuple(found)


def names_of_all(root: Path) -> Iterator[tuple[int, str]]:
    """Every process's id and name."""
    for pid in map(int, files.numbers(f"{root}/proc")):
        yield pid, name_of(root, pid)


def name_of(root: Path, pid: int) -> str:
    """A process's name (comm), empty where it has ended."""
    try:
        return files.decode(files.read(f"{root}/proc/{pid}/comm")).rstrip("\n")
    except OSError:
        return ""


def _of_guest(root: Path, mount: Mount, pid: int, uuid: str) -> dict[str, Owner | None]:
    innermost = next(iter(cpusets.around(root, mount, pid)), None)
    found: dict[str, Owner | None] = {}
    for folder, part in cpusets.parts(cpusets.of_guest(innermost)) if innermost else ():
        found |= dict.fromkeys(_files([folder]), Owner(uuid, *part) if part else None)
    return found


def _files(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        yield str(folder / cpusets.CPUS)
        yield str(folder / cpusets.PARTITION)
