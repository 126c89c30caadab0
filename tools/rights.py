"""The rights that tests and the demo need of this machine: each is tried once, in a process of its own.

A plain container lacks most of them, and so does a user who is not root. As a program, `python tools/rights.py` prints
the table; `python tools/rights.py mounts taps` prints what of these is missing, and ends with status 1 if anything is.
"""

import array
import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PRIVATE, _RECURSIVE = 1 << 18, 1 << 14
_MOUNTS, _PIDS, _NETWORK = 0x20000, 0x20000000, 0x40000000
"""CLONE_NEWNS, CLONE_NEWPID and CLONE_NEWNET of linux/sched.h."""
_TUNSETIFF, _TAP = 0x400454CA, 0x1002
_GET_FLAGS, _SET_FLAGS, _IMMUTABLE = 0x80086601, 0x40086602, 0x10
_NOBODY = 65534
_CONNECTOR, _UEVENT = 11, 15
_MIGRATE_PAGES = {"x86_64": 256, "aarch64": 238}.get(os.uname().machine, -1)
_ANSWER_SECONDS = 2.0
_PROBE_SECONDS = 60
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Right:
    """Something that this process may or may not do here. ``try_it`` does it, and raises OSError where it cannot."""

    allows: str
    try_it: Callable[[], object]


def _call(name: str, *arguments: object) -> None:
    if getattr(_LIBC, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _act_as_root() -> None:
    if os.geteuid() != 0:
        raise OSError("this user is not root")


def _use_cpus(fits: Callable[[int], bool]) -> None:
    if not fits(number := len(os.sched_getaffinity(0))):
        raise OSError(f"this process may use {number}")


def _mount() -> None:
    _call("unshare", _MOUNTS)
    _call("mount", None, b"/", None, ctypes.c_ulong(_PRIVATE | _RECURSIVE), None)
    _call("mount", b"none", b"/tmp", b"tmpfs", ctypes.c_ulong(0), None)


def _make_pids() -> None:
    _call("unshare", _PIDS)
    if not (child := os.fork()):
        os._exit(os.getpid() != 1)
    if os.waitpid(child, 0)[1]:
        raise OSError("the first process of the namespace has another id than 1")


def _make_tap() -> None:
    with Path("/dev/net/tun").open("r+b", buffering=0) as tun:
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", f"pnr{os.getpid()}"[:15].encode(), _TAP))


def _make_card() -> None:
    name = f"pnr{os.getpid()}"[:14]
    _run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p")
    _run("ip", "link", "del", name)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stderr.strip()}")


def _become_urgent() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def _migrate_memory() -> None:
    """To a node outside of this process's nodes, which only a privileged process may try."""
    child = os.fork()
    if not child:
        signal.pause()
    first, absent = (ctypes.c_ulong * 1)(1), (ctypes.c_ulong * 1)(1 << 63)
    try:
        if _LIBC.syscall(_MIGRATE_PAGES, child, 65, first, absent) < 0 and ctypes.get_errno() != errno.EINVAL:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _see_kernel_threads() -> None:
    if Path("/proc/2/comm").read_text() != "kthreadd\n":
        raise OSError("process 2 is another one")


def _send_uevent() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _UEVENT) as sender:
        sender.sendto(b"pinner-right", (0, 1))


def _watch_writes() -> None:
    if (watch := _LIBC.fanotify_init(0, os.O_RDONLY)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(watch)


def _with_other_user(act: Callable[[int], object]) -> None:
    """Act on a process of another user."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        with suppress(OSError):
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            os.write(writing, b".")
            signal.pause()
        os._exit(1)
    os.close(writing)
    try:
        if not os.read(reading, 1):
            raise OSError("this process cannot become another user")
        act(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _move_other() -> None:
    _with_other_user(lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(0)))


def _read_other() -> None:
    _with_other_user(lambda pid: Path(f"/proc/{pid}/exe").readlink())


def _make_cgroup() -> None:
    _in_new_folder(Path("/sys/fs/cgroup"), "cpu", "")


def _make_cpuset() -> None:
    _in_new_folder(Path("/sys/fs/cgroup"), "cpuset", "cpuset.cpus")


def _in_new_folder(mount: Path, controller: str, file: str) -> None:
    """Make a cgroup with this controller, of version 1 or 2; set its ``file`` to the first CPU of this process."""
    top = mount / controller if (mount / controller).is_dir() else mount
    if top == mount:
        (mount / "cgroup.subtree_control").write_text(f"+{controller}")
    folder = top / f"pinner-right-{os.getpid()}"
    folder.mkdir()
    try:
        if file:
            (folder / file).write_text(str(min(os.sched_getaffinity(0))))
    finally:
        folder.rmdir()


@contextmanager
def _events_may_be_lost() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise


def _hear_of_processes() -> None:
    """Subscribe to the process connector, and receive its answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _CONNECTOR) as connector:
        connector.bind((0, 1))
        connector.settimeout(_ANSWER_SECONDS)
        number = os.getpid()
        body = struct.pack("=4I2HI", 1, 1, 0, number, 4, 0, 1)
        connector.send(struct.pack("=I2H2I", 16 + len(body), 3, 0, 0, 0) + body)
        deadline = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < deadline:
            with _events_may_be_lost():
                message = connector.recv(8192)
                answers, _, kind = struct.unpack_from("=3I", message, 28)
                if (answers, kind) == (number + 1, 0):
                    if refused := struct.unpack_from("=I", message, 52)[0]:
                        raise OSError(refused, os.strerror(refused))
                    return
        raise OSError("it does not answer")


def _read_traces() -> None:
    mounted = Path("/sys/kernel/tracing")
    if (mounted / "instances").is_dir():
        folder = mounted / "instances" / f"pinner-right-{os.getpid()}"
        folder.mkdir()
        folder.rmdir()
        return
    _call("unshare", _MOUNTS)
    _call("mount", None, b"/", None, ctypes.c_ulong(_PRIVATE | _RECURSIVE), None)
    _call("mount", b"nodev", os.fsencode(mounted), b"tracefs", ctypes.c_ulong(0), None)


def _ping() -> None:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP):
        return
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        pass


def _confine_guest() -> None:
    """A private libvirtd makes no cgroups where it has no mounts of its own."""
    _make_cpuset()
    _mount()


def _rewrite(path: str) -> None:
    Path(path).write_text(Path(path).read_text())


def _write_uevent() -> None:
    with next(iter(sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/uevent")))).open("w"):
        pass


def _make_immutable() -> None:
    with tempfile.NamedTemporaryFile() as file:
        flags = array.array("l", [0])
        fcntl.ioctl(file, _GET_FLAGS, flags)
        before, flags[0] = flags[0], flags[0] | _IMMUTABLE
        fcntl.ioctl(file, _SET_FLAGS, flags)
        flags[0] = before
        fcntl.ioctl(file, _SET_FLAGS, flags)


RIGHTS: Mapping[str, Right] = {
    "root": Right("act as root", _act_as_root),
    "two_cpus": Right("use two CPUs or more", lambda: _use_cpus(lambda number: number >= 2)),
    "exactly_two_cpus": Right("use two CPUs and no third", lambda: _use_cpus(lambda number: number == 2)),
    "mounts": Right("have mounts of its own (a mount namespace)", _mount),
    "pid_namespaces": Right("have process ids of its own (a PID namespace)", _make_pids),
    "network_namespaces": Right("have a network of its own (a network namespace)", lambda: _call("unshare", _NETWORK)),
    "taps": Right("make taps, as network cards of guests", _make_tap),
    "network_cards": Right("make and change network cards of this machine", _make_card),
    "realtime": Right("give threads a real-time policy", _become_urgent),
    "move_memory": Right("move the memory of other processes to another node", _migrate_memory),
    "kernel_threads": Right("see the kernel's threads", _see_kernel_threads),
    "move_other_users": Right("move threads of other users", _move_other),
    "read_other_users": Right("read all of /proc of other users' processes", _read_other),
    "cgroups": Right("make cgroups", _make_cgroup),
    "cpusets": Right("confine processes to cpusets", _make_cpuset),
    "guest_cgroups": Right("run guests in cgroups of libvirt", _confine_guest),
    "process_connector": Right("hear of each new process and thread (the process connector)", _hear_of_processes),
    "tracefs": Right("trace the kernel's scheduler (tracefs)", _read_traces),
    "icmp": Right("send pings", _ping),
    "sysctls": Right("write the kernel's settings", lambda: _rewrite("/proc/sys/net/core/rmem_max")),
    "choose_pids": Right("choose the id of the next process", lambda: _rewrite("/proc/sys/kernel/ns_last_pid")),
    "irqs": Right("write the CPUs of interrupts", lambda: _rewrite("/proc/irq/default_smp_affinity")),
    "forge_uevents": Right("send messages like the kernel's of devices", _send_uevent),
    "uevents": Right("make the kernel repeat an event of a CPU", _write_uevent),
    "watch_files": Right("watch all files of the machine (fanotify)", _watch_writes),
    "immutable_files": Right("make files immutable", _make_immutable),
}


@cache
def _reasons() -> dict[str, str]:
    """Why each right is missing, empty if it is there: found by a process that forks without other threads."""
    command = [sys.executable, "-IS", __file__, "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=_PROBE_SECONDS)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def lacking(*names: str) -> str:
    """The first of these rights that is missing here, empty if all are there. Raises KeyError for an unknown name."""
    return next((name for name in names if _reasons()[name]), "")


def why(name: str) -> str:
    """Why a right is missing, empty if it is there."""
    return _reasons()[name]


def _try(right: Right) -> str:
    """Why the right is missing, found by a child, which may change itself."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, _reason(right).encode()[:4096])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text


def _reason(right: Right) -> str:
    try:
        right.try_it()
    except OSError as error:
        return error.strerror or str(error)
    except BaseException:  # the child must not go on with the work of its parent
        return traceback.format_exc(limit=-1)
    return ""


def _main(names: list[str]) -> int:
    found = {name: _try(right) for name, right in RIGHTS.items() if not names or name in names or names == ["--json"]}
    if names == ["--json"]:
        print(json.dumps(found))
        return 0
    for name, reason in found.items():
        if reason or not names:
            print(f"{name:20} {'no' if reason else 'yes':4} {RIGHTS[name].allows}{f': {reason}' if reason else ''}")
    return int(bool(names) and any(found.values()))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
