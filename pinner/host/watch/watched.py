"""Finds the processes and files to watch, again after a guest starts or stops."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pinner.host.kernel import cpusets, files
from pinner.host.kernel.kernel import Mount
from pinner.host.processes import qemu
from pinner.model.kinds import TargetKind


class ConfinedPart(NamedTuple):
    guest: str
    kind: TargetKind
    part: int | None


@dataclass(frozen=True, slots=True)
class Watched:
    qemus: Mapping[int, str]
    """Process ids with the guest's UUID."""
    named: Mapping[int, str]
    files: Mapping[str, ConfinedPart | None]
    """Of cpusets, with the part that each confines."""


def find(root: Path, mount: Mount, guests: Collection[str], names: Collection[str]) -> Watched:
    """Of these guests (by UUID), and processes of these names."""
    qemus = {pid: uuid for uuid, pid in qemu.find(root, guests).qemus.items()} if guests else {}
    named = {pid: name for pid, name in names_of_all(root) if name in names} if names else {}
    found: dict[str, ConfinedPart | None] = {}
    for pid in (*qemus, *named):
        found |= dict.fromkeys(_files(cpusets.folders_of(root, mount, pid)))
    for pid, uuid in qemus.items():
        found |= _of_guest(root, mount, pid, uuid)
    return Watched(qemus, named, found)


def misplaced(root: Path, pid: int, tids: Iterable[int]) -> tuple[str, ...]:
    """Names of new QEMU threads that may be misplaced.

    Hot-plugged vCPUs and iothreads, and emulator threads that inherit one's mask.
    """
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
    for pid in map(int, files.numbers(f"{root}/proc")):
        yield pid, name_of(root, pid)


def name_of(root: Path, pid: int) -> str:
    """``comm``, empty where it has ended."""
    try:
        return files.decode(files.read(f"{root}/proc/{pid}/comm")).rstrip("\n")
    except OSError:
        return ""


def _of_guest(root: Path, mount: Mount, pid: int, uuid: str) -> dict[str, ConfinedPart | None]:
    innermost = next(iter(cpusets.folders_of(root, mount, pid)), None)
    found: dict[str, ConfinedPart | None] = {}
    for folder, part in cpusets.parts(cpusets.of_guest(innermost)) if innermost else ():
        found |= dict.fromkeys(_files([folder]), ConfinedPart(uuid, *part) if part else None)
    return found


def _files(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        yield str(folder / cpusets.CPUS)
        yield str(folder / cpusets.PARTITION)
