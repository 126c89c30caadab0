"""Removes names from a captured machine that identify its users, guests or programs. Pure.

Unchanged are kernel threads, QEMU's executable name and the names of its threads (CPU 0/KVM), because they distinguish
a guest from a daemon. The kernel's command line keeps the names of all its arguments, and the values of those that
pinner reads; init's arguments are removed. Of the user ids remains only whether they are root's.
"""

import re
from collections.abc import Mapping
from itertools import count, takewhile
from pathlib import PurePath
from types import MappingProxyType

from pinner.host.captured.domain_scrub import Alias
from pinner.host.kernel import procfs
from pinner.host.kernel.files import decode
from pinner.host.processes import qemu
from pinner.host.processes.immovable import is_qemu

_ARGUMENTS = frozenset({b"isolcpus", b"maxcpus", b"nohz", b"nohz_full", b"nosmt", b"numa", b"rcu_nocbs"})
_CGROUPS = frozenset({b"cgroup", b"cgroup2", b"cpuset"})
_NUMBERS = re.compile(rb"(N\d+|kernelpagesize_kB)=\d+")
_STATUS = (b"Uid:", b"Cpus_allowed", b"Mems_allowed")
_NOBODY = b"65534"


class Scrubber:
    """Scrubs a machine file by file; the same unit gets the same new name each time."""

    def __init__(self, guests: Mapping[str, Alias] = MappingProxyType({})) -> None:
        """``guests`` has the alias of each guest by its UUID."""
        self._guests = guests
        self._numbers = count(1)
        self._units: dict[str, str] = {"": ""}
        self._qemus: set[str] = set()

    def scrubbed(self, name: PurePath, data: bytes) -> bytes | None:
        """The scrubbed content of a file with this name (below the root); None where the file must not be saved.

        A process's ``cmdline`` must be scrubbed before its other files.
        """
        match name.parts:
            case ("proc", "cmdline"):
                for_kernel = takewhile(lambda argument: argument != b"--", data.split())
                return b" ".join(map(_argument, for_kernel)) + b"\n"
            case ("proc", "mounts"):
                return b"".join(line for line in data.splitlines(keepends=True) if line.split(b" ")[2] in _CGROUPS)
            case ("proc", pid, file) if pid.isdecimal():
                return self._of_process(pid, file, data)
            case ("proc", pid, "task", tid, file):
                return self._of_thread(pid, f"process-{pid}" if tid == pid else f"thread-{tid}", file, data)
            case ("sys", "class", "net", _, "mtu") | ("sys", "class", "net", _, "statistics", _):
                # This is the only file of an interface without a device: a tap, whose name contains the guest's port.
                return None
        return data

    def _of_process(self, pid: str, file: str, data: bytes) -> bytes:
        match file:
            case "cmdline":
                executable = decode(data).partition("\0")[0]
                if is_qemu(executable):
                    self._qemus.add(pid)
                    alias = self._guests.get(qemu.uuid_of(data))
                    words = (executable.rpartition("/")[2], *(("-uuid", alias.uuid) if alias else ()))
                    return "".join(f"{word}\0" for word in words).encode()
                return f"process-{pid}\0".encode() if data else b""
            case "cgroup":
                return f"0::/{self._unit(procfs.parse_unit(data))}\n".encode()
            case "numa_maps":
                lines = (filter(_NUMBERS.fullmatch, line.split()) for line in data.splitlines())
                return b"".join(b" ".join(line) + b"\n" for line in lines)
        return self._of_thread(pid, f"process-{pid}", file, data)

    def _of_thread(self, pid: str, name: str, file: str, data: bytes) -> bytes:
        match file:
            case "stat" if pid not in self._qemus and not procfs.parse_stat(data).flags & procfs.PF_KTHREAD:
                return data[: data.index(b"(") + 1] + name.encode() + data[data.rindex(b")") :]
            case "status":
                lines = map(_without_user, data.splitlines(keepends=True))
                return b"\n" + b"".join(line for line in lines if line.startswith(_STATUS))
        return data

    def _unit(self, unit: str) -> str:
        if unit not in self._units:
            kind = unit.rpartition(".")[2]
            suffix = f".{kind}" if kind in ("service", "scope") else ""
            self._units[unit] = f"unit-{next(self._numbers)}{suffix}"
        return self._units[unit]


def _without_user(line: bytes) -> bytes:
    """The line of a status file; ids of other users than root become nobody's."""
    if not line.startswith(b"Uid:"):
        return line
    ids = (user if user == b"0" else _NOBODY for user in line.split()[1:])
    return b"Uid:\t" + b"\t".join(ids) + b"\n"


def _argument(argument: bytes) -> bytes:
    name, equals, _ = argument.partition(b"=")
    return argument if name.replace(b"-", b"_") in _ARGUMENTS else name + equals
