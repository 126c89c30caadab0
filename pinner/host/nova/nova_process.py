"""Finds nova-compute's own process, and reads how it was started, and the files below its root directory.

Any process can write any command line. pinner believes what its user cannot make up:

- it runs as root, or as the user that its own /etc/passwd, which root owns, names nova,
- its program is Python, its script nova-compute; root owns both, and only root can write them,
- its user namespace is pinner's: in another one, a user can mount an /etc/passwd,
- it still has its command line: a user's process can run a program of root, such as sudo, and keep its id."""

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pinner.host.kernel import beneath, files
from pinner.host.kernel.files import numbers, read, read_start
from pinner.host.kernel.procfs import HERTZ, parse_stat
from pinner.model.errors import Invalid

MAX_FILE = 1 << 20
"""Bytes. A nova.conf with all comments has 0.5 MiB."""

_NULL = os.makedev(1, 3)
_PATH = os.O_PATH | os.O_CLOEXEC
_RESOLVE = beneath.RESOLVE_IN_ROOT | beneath.RESOLVE_NO_MAGICLINKS


class ProcessRoot:
    """The root directory of a process, also in a container. Links and ``..`` stay below it (openat2(2),
    RESOLVE_IN_ROOT); older kernels open only a path without links."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def exists(self, path: str) -> bool:
        """Raises Busy."""
        try:
            with self._opened(path):
                return True
        except OSError:
            return False

    def stat(self, path: str) -> os.stat_result:
        with self._opened(path) as descriptor:
            return os.fstat(descriptor)

    def names(self, path: str) -> list[str]:
        """Empty where ``path`` is no folder. Raises OSError."""
        try:
            with self._opened(path) as descriptor:
                return os.listdir(f"/proc/self/fd/{descriptor}")  # noqa: PTH208 - an open descriptor
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise files.known(error) from None

    def read(self, path: str) -> bytes:
        """/dev/null, which administrators use as an empty file, is empty. Raises OSError; Invalid for another kind of
        file (a pipe would block) or one above ``MAX_FILE``."""
        with self._opened(path) as descriptor:
            status = os.fstat(descriptor)
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL:
                return b""
            _require_regular(path, status)
            # The file is known to be regular, so a second open by its descriptor has no side effect.
            with os.fdopen(files.open_file(f"/proc/self/fd/{descriptor}", os.O_RDONLY), "rb") as file:
                content = file.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            raise Invalid("nova.conf", path, f"a file of at most {MAX_FILE} bytes")
        return content

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        descriptor = self._open(path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, path: str) -> int:
        if "\0" in path:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        names = filter(None, os.path.normpath(f"/{path}").split("/"))
        return beneath.open_path(self._descriptor, path, names, _PATH, _RESOLVE)


@contextmanager
def opened(folder: str, process: int | None = None) -> Iterator[ProcessRoot]:
    """``folder`` is a path, or a name in the open /proc/PID ``process``. Raises OSError."""
    descriptor = files.open_file(folder, _PATH | os.O_DIRECTORY, process)
    try:
        yield ProcessRoot(descriptor)
    finally:
        os.close(descriptor)


def is_roots_own(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _require_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise Invalid("nova.conf", path, "a regular file")


NAME = "nova-compute"
PROC = Path("/proc")

MAX_ARGUMENTS = 1 << 17
"""Bytes; more is not believed. 128 KiB are the kernel's limit of one argument."""

_START = 4096
"""Bytes that contain the script: PATH_MAX."""

_WITH_VALUE = ("-W", "-X")


@dataclass(frozen=True, slots=True)
class Started:
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    home: str = ""
    """Empty for a user without one."""
    folder: str = "/"
    program: str = NAME
    at: float | None = None
    """Seconds since the epoch; None where no process runs."""
    has_default_places: bool = True
    """False for a container, which does not have those of the host."""


class NotBelieved(Exception): ...


@dataclass(frozen=True, slots=True)
class Candidate:
    pid: int
    script: str
    arguments: tuple[str, ...]


def candidates(proc: Path = PROC) -> Iterator[Candidate]:
    """By their command lines alone."""
    for pid in numbers(str(proc)):
        try:
            # The script is at the start, and most processes are others.
            if NAME.encode() not in read_start(f"{proc}/{pid}/cmdline", _START):
                continue
            line = read_start(f"{proc}/{pid}/cmdline", MAX_ARGUMENTS)
        except OSError:
            continue
        if candidate := _script(int(pid), line):
            yield candidate


def started(candidate: Candidate, folder: int, root: ProcessRoot) -> Started:
    """``folder`` is the open /proc/PID. Raises NotBelieved; OSError where the process has ended or is unreadable."""
    home = _require_novas_user(folder, root)
    for what, status in (("program", os.stat("exe", dir_fd=folder)), ("script", _status(root, candidate.script))):
        if not is_roots_own(status):
            raise NotBelieved(f"its {what} is not a file that only root can write")
    if "python" not in Path(os.readlink("exe", dir_fd=folder)).name:
        raise NotBelieved("its program is not Python")
    environ = read_start("environ", MAX_ARGUMENTS, folder)
    if len(environ) == MAX_ARGUMENTS:
        raise NotBelieved(f"its environment has {MAX_ARGUMENTS} bytes or more")
    pairs = [(name, value) for name, equals, value in (part.partition("=") for part in _texts(environ)) if equals]
    # As os.environ: of two variables of one name the first one counts.
    variables = dict(reversed(pairs))
    # As os.path.expanduser, which oslo.config uses: it takes an empty home for the root directory.
    home = variables.get("HOME", home) or ("/" if "HOME" in variables else "")
    program = os.path.basename(candidate.script).removesuffix(".py")  # noqa: PTH119 - as oslo.config does
    ticks = parse_stat(read("stat", folder)).started
    # Last: what was read before is then of this program, too.
    if _script(candidate.pid, read_start("cmdline", MAX_ARGUMENTS, folder)) != candidate:
        raise NotBelieved("its command line has changed: it runs another program now")
    at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / HERTZ
    return Started(candidate.arguments, tuple(variables.items()), home, _working_folder(folder), program, at)


def home_of(user: str, root: ProcessRoot) -> str:
    return next((home for name, _, home in _users(root) if name == user), "")


def _script(pid: int, line: bytes) -> Candidate | None:
    """As in ``python3 -s /usr/bin/nova-compute ...``."""
    if len(line) == MAX_ARGUMENTS:
        return None
    words = _texts(line)
    position = 1
    while position < len(words) and words[position].startswith("-"):
        if words[position] in ("-c", "-m"):
            return None
        position += 2 if words[position] in _WITH_VALUE else 1
    if position >= len(words) or words[position].rpartition("/")[2] not in (NAME, f"{NAME}.py"):
        return None
    return Candidate(pid, words[position], tuple(words[position + 1 :]))


def _require_novas_user(folder: int, root: ProcessRoot) -> str:
    """The user's home. Raises NotBelieved."""
    if os.stat("ns/user", dir_fd=folder).st_ino != Path("/proc/self/ns/user").stat().st_ino:
        raise NotBelieved("it is in a user namespace of its own")
    status = read("status", folder)
    start = status.index(b"\nUid:") + 5
    ids = {int(user_id) for user_id in status[start : status.index(b"\n", start)].split()}
    named = [(name, home) for name, uid, home in _users(root) if ids == {uid}]
    home = next((home for _, home in named), "")
    if ids == {0} or any(name == "nova" for name, _ in named):
        return home
    who = named[0][0] if named else ", ".join(map(str, sorted(ids)))
    raise NotBelieved(f"its user is {who}, and neither root nor nova")


def _users(root: ProcessRoot) -> Iterator[tuple[str, int, str]]:
    """None where another user than root can write /etc/passwd."""
    try:
        if not is_roots_own(root.stat("/etc/passwd")):
            return
        lines = root.read("/etc/passwd").decode(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(":")
        if len(fields) >= 6 and fields[2].isdecimal():
            yield fields[0], int(fields[2]), fields[5]


def _status(root: ProcessRoot, script: str) -> os.stat_result:
    if not script.startswith("/"):
        raise NotBelieved(f"its script {script} is not an absolute path")
    try:
        return root.stat(script)
    except OSError as error:
        raise NotBelieved(f"its script {script} does not exist ({error.strerror})") from None


def _working_folder(folder: int) -> str:
    root, cwd = os.readlink("root", dir_fd=folder), os.readlink("cwd", dir_fd=folder)
    return cwd.removeprefix(root) or "/" if root != "/" else cwd


def _texts(line: bytes) -> list[str]:
    return [os.fsdecode(part) for part in line.removesuffix(b"\0").split(b"\0")]
