"""Gives a libvirtd its own folders at the paths of the machine's: libvirt has these paths compiled in.

In mounts of its own where the machine allows that. A plain container does not, but is a private machine: there the
machine's folders are moved aside, and symbolic links take their places. So there is one such libvirtd at a time.
"""

import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDERS = {
    "etc": "/etc/libvirt",
    "run": "/run/libvirt",
    "lib": "/var/lib/libvirt",
    "log": "/var/log/libvirt",
    "cache": "/var/cache/libvirt",
}
_SETTINGS = """\
user = "root"
group = "root"
namespaces = []
stdio_handler = "file"
max_core = 0
security_driver = "none"
"""
"""The part of qemu.conf that is the same everywhere."""
_STOP_SECONDS = 10
_LOCK = Path("/run/lock/pinner-private-libvirtd")
_SOCKETS = ("/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock")


class Unusable(RuntimeError):
    """The daemon cannot run here; the text says why."""


Processes = Callable[[], list[int]]
"""Finds the processes that a daemon has started and that outlive it: QEMUs and others."""


class InMounts:
    """The folders are bind-mounted; the mount namespace identifies all processes that the daemon started."""

    settings = _SETTINGS

    @contextmanager
    def placed(self, folder: Path) -> Iterator[None]:  # noqa: ARG002 - the daemon's command mounts it
        """Have a place for each of the folders."""
        created = [path for path in map(Path, FOLDERS.values()) if not path.exists()]
        for path in created:
            path.mkdir(parents=True)
        try:
            yield
        finally:
            for path in created:
                with suppress(OSError):
                    path.rmdir()

    def command(self, folder: Path) -> list[str]:
        """The words in front of the daemon's command."""
        mounts = "".join(f'mount --bind "$folder/{name}" {target}; ' for name, target in FOLDERS.items())
        script = f'set -e; folder=$1; shift; {mounts}exec "$@"'
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(folder)]

    @contextmanager
    def again(self, daemon: int) -> Iterator[tuple[list[str], list[int]]]:
        """The same for a daemon in place of this one, which runs still, and file descriptors that the words need."""
        with Path(f"/proc/{daemon}/ns/mnt").open() as file:
            yield ["nsenter", f"--mount=/proc/self/fd/{file.fileno()}"], [file.fileno()]

    @contextmanager
    def guests(self, folder: Path, daemon: subprocess.Popen[bytes]) -> Iterator[Processes]:  # noqa: ARG002
        """What finds the processes of the daemon, which has just started."""
        deadline = time.monotonic() + _STOP_SECONDS
        while daemon.poll() is None and _mount_namespace(daemon.pid) == _mount_namespace(os.getpid()):
            if time.monotonic() > deadline:
                raise Unusable("unshare made no mount namespace")
            time.sleep(0.01)
        if daemon.poll() is not None:
            raise Unusable(f"unshare or mount failed with status {daemon.returncode}")
        # The open file prevents that the number of the namespace is used again.
        with Path(f"/proc/{daemon.pid}/ns/mnt").open() as file:
            own = os.fstat(file.fileno()).st_ino
            yield lambda: [pid for pid in _processes() if pid != daemon.pid and _mount_namespace(pid) == own]


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _mount_namespace(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}/ns/mnt").stat().st_ino
    except OSError:
        return 0


class Linked:
    """The folders are behind symbolic links. QEMUs are known by libvirt's files with their process ids; guests have no
    cgroups."""

    settings = f"{_SETTINGS}cgroup_controllers = []\nremember_owner = 0\n"

    @contextmanager
    def placed(self, folder: Path) -> Iterator[None]:
        """Have the links in place. Raises Unusable."""
        with _LOCK.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Unusable("one private libvirtd runs already; without mounts there cannot be two") from None
            if other := next(filter(_answers, _SOCKETS), None):
                raise Unusable(f"the machine's own libvirtd runs at {other}, and it cannot have mounts of its own")
            _restore()
            try:
                for name, target in FOLDERS.items():
                    _put_aside(Path(target))
                    Path(target).symlink_to(folder / name)
                yield
            finally:
                _restore()

    def command(self, folder: Path) -> list[str]:  # noqa: ARG002
        """Nothing is in front of the daemon's command."""
        return []

    @contextmanager
    def again(self, daemon: int) -> Iterator[tuple[list[str], list[int]]]:  # noqa: ARG002
        """Nothing again: the links are still there."""
        yield [], []

    @contextmanager
    def guests(self, folder: Path, daemon: subprocess.Popen[bytes]) -> Iterator[Processes]:
        """What finds the QEMUs."""
        yield lambda: [pid for pid in _started_from(folder) if pid != daemon.pid]


def _started_from(folder: Path) -> list[int]:
    """The daemon, also one that a test has started again, the QEMUs of guests, and those that tell what QEMU can do."""
    found = []
    for file in [folder / "libvirtd.pid", *folder.glob("run/qemu/*.pid"), *folder.glob("lib/qemu/*/*.pid")]:
        with suppress(OSError, ValueError):
            pid = int(file.read_text())
            program = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
            if b"qemu" in program or b"libvirtd" in program:
                found.append(pid)
    return found


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return not client.connect_ex(path)


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".before-pinner")


def _put_aside(path: Path) -> None:
    """Rename the machine's folder; where there is none, an empty file says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        _move(path, _aside(path))
    else:
        _aside(path).touch()


def _restore() -> None:
    """Put the machine's folders back, also those that a killed process has left aside; its daemon and guests end."""
    for path in map(Path, FOLDERS.values()):
        if not os.path.lexists(aside := _aside(path)):
            continue
        if path.is_symlink():
            for pid in _started_from(path.readlink().parent):
                os.kill(pid, signal.SIGKILL)
            path.unlink()
        if aside.is_file():
            aside.unlink()
        else:
            _move(aside, path)


def _move(source: Path, target: Path) -> None:
    """By mv(1): it keeps owners, and copies a folder of a container's image, which cannot be renamed."""
    subprocess.run(["mv", "--no-target-directory", source, target], check=True, capture_output=True)
