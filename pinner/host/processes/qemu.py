"""Finds QEMU's processes and threads in /proc: libvirt reports no thread id without tainting the guest. The names of
threads are QEMU's (``-name debug-threads=on``, which libvirt always passes)."""

import pwd
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pinner.host.kernel import files, procfs
from pinner.host.processes.immovable import owner_of
from pinner.model.errors import Gone
from pinner.model.kinds import TargetKind
from pinner.model.machine.process import Thread

_VCPU = re.compile(r"CPU (\d+)/\w+", re.ASCII)
_IOTHREAD = re.compile(r"IO iothread(\d+)", re.ASCII)
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"(?:^|,)guest=((?:[^,]|,,)*)")
_PAGES = re.compile(r"(?:^|\s)N(\d+)=(\d+)", re.ASCII)
_EXECUTABLE = re.compile("qemu|kvm")

_MAX_COMMAND = 256 * 1024
"""Bytes. libvirt writes -uuid before all devices, in the first KiB. Any other process may have 6 MiB."""

_ANY: Mapping[str, int | None] = MappingProxyType({})

_Found = tuple[int, int]
"""Start time and id."""


@dataclass(frozen=True, slots=True)
class Processes:
    """QEMU's process id by the guest's UUID, and its vhost and kvm-pit threads by that id."""

    qemus: Mapping[str, int]
    vhost_threads: Mapping[int, tuple[Thread, ...]]


@dataclass(frozen=True, slots=True)
class QemuThreads:
    vcpus: Mapping[int, Thread]
    iothreads: Mapping[int, Thread]
    emulator: tuple[Thread, ...]


def role(name: str) -> tuple[TargetKind, int | None]:
    """A vCPU or iothread with its number, else the emulator."""
    if vcpu := _VCPU.fullmatch(name):
        return "vcpu", int(vcpu[1])
    if iothread := _IOTHREAD.fullmatch(name):
        return "iothread", int(iothread[1])
    return "emulator", None


def is_emulator(name: str) -> bool:
    return role(name)[0] == "emulator"


def roles(threads: Iterable[Thread]) -> QemuThreads:
    """Per-CPU threads have no role: they cannot be moved (see affinity.masks)."""
    vcpus: dict[int, Thread] = {}
    iothreads: dict[int, Thread] = {}
    emulator: list[Thread] = []
    for thread in threads:
        if thread.immovable_reason == "per-cpu":
            continue
        match role(thread.name):
            case "vcpu", int(part):
                vcpus[part] = thread
            case "iothread", int(part):
                iothreads[part] = thread
            case _:
                emulator.append(thread)
    return QemuThreads(vcpus, iothreads, tuple(emulator))


def find(root: Path, uuids: Collection[str], users: Mapping[str, int | None] = _ANY) -> Processes:
    """``users`` has who runs a guest's QEMU: another user's process is not it, whatever its command line says."""
    vhost_threads: dict[int, tuple[Thread, ...]] = {}
    likely: list[_Found] = []
    others: list[_Found] = []
    for pid in map(int, files.numbers(f"{root}/proc")):
        try:
            stat = procfs.parse_stat(files.read(f"{root}/proc/{pid}/stat"))
            if not stat.flags & procfs.PF_KTHREAD:
                (likely if _EXECUTABLE.match(stat.name) else others).append((stat.started, pid))
            elif (owner := owner_of(stat.name)) is not None:
                vhost_threads[owner] = vhost_threads.get(owner, ()) + procfs.threads_of(root, pid)
        except (OSError, ValueError, IndexError, Gone):
            continue
    qemus = _by_uuid(root, likely, uuids, users)
    if missing := set(uuids) - set(qemus):
        qemus |= _by_uuid(root, others, missing, users)
    return Processes(qemus, vhost_threads)


def named(root: Path) -> dict[str, str]:
    """The names by UUID that command lines claim: any process can claim to be QEMU."""
    names: dict[str, str] = {}
    for pid in map(int, files.numbers(f"{root}/proc")):
        try:
            command = files.read_start(f"{root}/proc/{pid}/cmdline", _MAX_COMMAND)
        except OSError:
            continue
        if _UUID.fullmatch(uuid := uuid_of(command)):
            names.setdefault(uuid, name_of(command) or uuid)
    return names


def user_id(name: str) -> int | None:
    """The user of a libvirt label: a name, or + and an id. None also for no user of this host."""
    if (number := name.removeprefix("+")).isdecimal():
        return int(number)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def is_incoming(root: Path, pid: int) -> bool:
    try:
        return b"-incoming" in files.read_start(f"{root}/proc/{pid}/cmdline", _MAX_COMMAND).split(b"\0")
    except OSError:
        return False


def memory_per_node(root: Path, pid: int) -> dict[int, int]:
    """Resident KiB."""
    return resident(root, pid).per_node


@dataclass(frozen=True, slots=True)
class Resident:
    """KiB by NUMA node."""

    per_node: dict[int, int]
    huge: dict[int, int]
    """Transparent huge pages do not count: the kernel can split and move them."""


def resident(root: Path, pid: int) -> Resident:
    """From /proc/PID/numa_maps; empty where it cannot be read. Slow for a large guest."""
    pages_kib = Resident({}, {})
    for line in (files.text(root / f"proc/{pid}/numa_maps") or "").splitlines():
        # A guest has hundreds of lines. No path can look like a node: the kernel escapes its spaces.
        if nodes := _PAGES.findall(line):
            _, has_size, rest = line.rpartition(" kernelpagesize_kB=")
            size = int(rest.split(" ", 1)[0]) if has_size else 0
            for kind in (pages_kib.per_node, pages_kib.huge) if " huge" in line else (pages_kib.per_node,):
                for node, pages in nodes:
                    kind[int(node)] = kind.get(int(node), 0) + int(pages) * size
    return pages_kib


def _by_uuid(
    root: Path, processes: Iterable[_Found], uuids: Collection[str], users: Mapping[str, int | None]
) -> dict[str, int]:
    """Of several processes with one UUID the oldest is QEMU, others are fakes."""
    qemus: dict[str, int] = {}
    for _, pid in sorted(processes):
        try:
            uuid = uuid_of(files.read_start(f"{root}/proc/{pid}/cmdline", _MAX_COMMAND))
            if uuid in uuids and _is_of(root, pid, users.get(uuid)):
                qemus.setdefault(uuid, pid)
        except OSError:
            continue
    return qemus


def _is_of(root: Path, pid: int, user: int | None) -> bool:
    """Whether it has no other rights: a setuid program's command line is its caller's."""
    if user is None:
        return True
    match = re.search(rb"^Uid:(.*)", files.read(f"{root}/proc/{pid}/status"), re.MULTILINE)
    return match is not None and set(map(int, match[1].split())) == {user}


def uuid_of(cmdline: bytes) -> str:
    return _value(cmdline, b"-uuid")


def name_of(cmdline: bytes) -> str:
    # QEMU reads a doubled comma as a comma of the value.
    match = _NAME.search(_value(cmdline, b"-name"))
    return match[1].replace(",,", ",") if match else ""


def _value(cmdline: bytes, option: bytes) -> str:
    words = cmdline.split(b"\0")
    try:
        return files.decode(words[words.index(option) + 1])
    except (ValueError, IndexError):
        return ""
