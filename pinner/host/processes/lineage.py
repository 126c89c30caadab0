"""Finds the threads of other processes that inherited a process's mask: a fork copies the mask, and so does exec.

Sources: proc(5) for /proc/PID/stat (parent, process group, session, start time, addresses), credentials(7). A child
loses its parent when the parent ends, and a daemon leaves its session. So a process is a descendant of another one if
it started after that one got its mask, and one of these facts holds:

- its parent is a descendant, or the process itself;
- its session or process group has the id of a descendant, or of the process: the kernel gives no new process that id
  while the group exists;
- it has the random addresses of the process's program: only a fork has the same ones, an exec chooses new ones;
- it is in the cgroup of the process's systemd service;
- it is an orphan in the process's session: it leads no session, and its parent is in another one, or is the first
  process of a container, which adopts orphans.

A process group, a service or an orphan's session does not count if the present parent, which is no descendant, has the
same mask: the mask may come from there. Nor do the addresses, unless that parent has other addresses: then it has
adopted the process, and has not forked it. A parent that got its mask from pinner after the process had started has not
given it to the process.

Where the parent has the same addresses and the same mask, but not from pinner, it may have forked the process, or
adopted a fork of the placed one. Such a process is unsure, and it is named."""

import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pinner.host.kernel import affinity, cgroups, files, procfs
from pinner.host.processes import immovable
from pinner.model.change import ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Gone
from pinner.model.machine.process import Descendants, Lineage

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RANDOMIZE = Path("/proc/sys/kernel/randomize_va_space")
_NO_RANDOMIZE = 0x0040000
"""ADDR_NO_RANDOMIZE of personality(2)."""
_IDS = re.compile(rb"^NSpid:(.*)$", re.MULTILINE)
_ADDRESSES = (23, 25, 44)
"""Fields of /proc/PID/stat after the name: startcode, startstack, start_brk."""


@dataclass(frozen=True, slots=True)
class Relative:
    pid: int
    parent: int
    group: int
    session: int
    started: int
    layout: str
    kernel: bool

    @property
    def key(self) -> ThreadKey:
        return ThreadKey(self.pid, self.started)


def read(pid: int | None) -> Lineage:
    """The boot and the moment; with a process id, also its service, addresses and session. Raises Gone."""
    boot, since = _boot(), ticks()
    if pid is None:
        return Lineage(boot, since)
    try:
        relative = _relative(pid, files.read(f"/proc/{pid}/stat"))
        return Lineage(boot, since, _service(pid), relative.layout if _is_randomized(pid) else "", relative.session)
    except (OSError, ValueError, IndexError):
        raise Gone(f"process {pid}") from None


_known_boot = ""


def _boot() -> str:
    global _known_boot
    _known_boot = _known_boot or files.text(_BOOT_ID) or ""
    return _known_boot


def inheritors(
    pid: int,
    started: int,
    lineage: Lineage,
    masks: Collection[CpuSet],
    others: Mapping[ThreadKey, int],
    relatives: Mapping[int, Relative],
) -> Descendants[ThreadMask]:
    """The threads with one of the ``masks`` in descendants of the process. ``others`` are processes with a change of
    their own, and the moment before it: only their descendants count. QEMU's threads belong to its guest."""
    if lineage.boot != _boot():
        return Descendants()
    descending = descendants(pid, started, lineage, relatives, others, _main_mask, _service, _is_first)
    return Descendants(_threads(descending.sure, masks), _threads(descending.unsure, masks))


def _threads(pids: Collection[int], masks: Collection[CpuSet]) -> tuple[ThreadMask, ...]:
    masked: list[ThreadMask] = []
    for pid in pids:
        with suppress(Gone, OSError):
            if not immovable.is_qemu(files.decode(files.read(f"/proc/{pid}/cmdline").replace(b"\0", b" "))):
                masked += [thread for thread in affinity.masks(pid) if thread.cpus in masks]
    return tuple(sorted(masked, key=lambda thread: thread.tid))


@dataclass
class _Kinship:
    """``mask``, ``service`` and ``adopts`` as in ``descendants``."""

    lineage: Lineage
    relatives: Mapping[int, Relative]
    others: Mapping[ThreadKey, int]
    mask: Callable[[int], CpuSet]
    service: Callable[[int], str]
    adopts: Callable[[int], bool]
    kin: set[int]
    """The process and its descendants, also those that have ended."""
    living: set[int]

    def is_fork(self, relative: Relative) -> bool:
        return self.lineage.layout != "" and relative.layout == self.lineage.layout

    def descends(self, relative: Relative) -> bool:
        # Only descendants of its leader are in a session.
        if relative.parent in self.living or relative.session in self.kin or self._is_adopted_fork(relative):
            return True
        lineage = self.lineage
        shows = (
            relative.group in self.kin
            or self.is_fork(relative)
            or (lineage.service != "" and self.service(relative.pid) == lineage.service)
            or (lineage.session != 0 and relative.session == lineage.session and self._is_orphan(relative))
        )
        return shows and not self._has_own_mask(relative)

    def _has_own_mask(self, relative: Relative) -> bool:
        parent = self.relatives.get(relative.parent)
        if parent is None or parent.pid in self.kin or self.others.get(parent.key, 0) > relative.started:
            return False
        return self.mask(parent.pid) == self.mask(relative.pid)

    def _is_orphan(self, relative: Relative) -> bool:
        parent = self.relatives.get(relative.parent)
        is_adopted = parent is None or parent.session != relative.session or self.adopts(parent.pid)
        return relative.pid != relative.session and is_adopted

    def _is_adopted_fork(self, relative: Relative) -> bool:
        parent = self.relatives.get(relative.parent)
        return self.is_fork(relative) and parent is not None and parent.layout not in ("", relative.layout)


def descendants(
    pid: int,
    started: int,
    lineage: Lineage,
    relatives: Mapping[int, Relative],
    others: Mapping[ThreadKey, int],
    mask: Callable[[int], CpuSet],
    service: Callable[[int], str],
    adopts: Callable[[int], bool] = lambda _: False,
) -> Descendants[int]:
    """``mask``, ``service`` and ``adopts`` read facts of a process id; ``adopts``: it is a PID namespace's first."""
    known = relatives.get(pid)
    # With another start time, the id belongs to another process, and so do its children, group and session.
    kin = {pid} if known is None or known.started == started else set[int]()
    kinship = _Kinship(lineage, relatives, others, mask, service, adopts, kin, kin if known else set())
    programs = (relative for relative in relatives.values() if not relative.kernel and relative.pid != pid)
    young = {program.pid: program for program in programs if program.started >= lineage.since}
    while new_kin := {candidate.pid for candidate in young.values() if kinship.descends(candidate)}:
        kinship.kin = kinship.kin | new_kin
        kinship.living = kinship.living | new_kin
        young = {candidate: young[candidate] for candidate in young.keys() - new_kin}
    sure = [member for member in kinship.kin - {pid} if member not in relatives or relatives[member].key not in others]
    # A child of a placed process is found by the undo of that one.
    keys = {relative.pid: relative.key for relative in relatives.values()}
    forks = (fork for fork in young.values() if kinship.is_fork(fork) and fork.key not in others)
    unsure = (fork.pid for fork in forks if keys.get(fork.parent) not in others)
    return Descendants(tuple(sorted(sure)), tuple(sorted(unsure)))


def ticks() -> int:
    """Clock ticks after boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * procfs.HERTZ)


def scan() -> dict[int, Relative]:
    relatives = {}
    for name in files.numbers("/proc"):
        with suppress(OSError, ValueError, IndexError):
            relatives[int(name)] = _relative(int(name), files.read(f"/proc/{name}/stat"))
    return relatives


def _relative(pid: int, stat: bytes) -> Relative:
    fields = stat[stat.rindex(b")") + 2 :].split()
    addresses = [int(fields[number]) for number in _ADDRESSES]
    layout = " ".join(f"{address:x}" for address in addresses) if all(addresses[:2]) else ""
    kernel = bool(int(fields[6]) & procfs.PF_KTHREAD)
    return Relative(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), layout, kernel)


def _is_randomized(pid: int) -> bool:
    try:
        flags = int(files.read(f"/proc/{pid}/personality"), 16)
    except OSError:
        return False
    return bool(files.number(_RANDOMIZE)) and not flags & _NO_RANDOMIZE


def _service(pid: int) -> str:
    """The cgroup of its systemd service, unless that runs other units (user@1000.service)."""
    try:
        rows = cgroups.parse_rows(files.read(f"/proc/{pid}/cgroup"))
    except OSError:
        return ""
    path = next((path for controllers, path in rows if controllers in ("", "name=systemd") and path != "/"), "")
    return path if path.endswith(".service") else ""


def _is_first(pid: int) -> bool:
    """NSpid says so (pid_namespaces(7))."""
    with suppress(OSError):
        match = _IDS.search(files.read(f"/proc/{pid}/status"))
        return match is not None and match[1].split()[-1:] == [b"1"]
    return False


def _main_mask(pid: int) -> CpuSet:
    with suppress(OSError):
        return CpuSet.of(os.sched_getaffinity(pid))
    return CpuSet()
