"""A Unix socket's mode, and its folder, which only its owner can write, decide who may connect (unix(7))."""

import grp
import os
import socket
import ssl
import stat
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pinner.agent.socket import peers
from pinner.model.errors import Invalid, NotPermitted
from pinner.owners import connect_remedy, require_own

MAX_PATH = 107
"""Bytes (sun_path in unix(7))."""
LOOPBACK = "127.0.0.1"
PROBE_SECONDS = 5.0
BACKLOG = 128
_FIRST_INHERITED = 3
_NO_ID, _ID_DIGITS = 2**32 - 1, 10
_RETRY_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """Always at the path ``unix``, and over TCP where ``bind`` is not empty."""

    unix: Path
    group: str
    """Its members may connect, where root runs the server."""
    bind: str
    port: int
    tls: ssl.SSLContext | None = None
    """For ``bind``; None: plain HTTP."""


def listen(address: ApiAddress, undo: ExitStack, *, wait_seconds: float = 0.0) -> list[socket.socket]:
    """``undo`` closes and removes the sockets. ``wait_seconds``: for the end of another API. Raises Invalid."""
    as_root = os.geteuid() == 0
    group, mode = (group_id(address.group), 0o660) if as_root else (-1, 0o600)
    listening = [listen_unix(address.unix, "[api] socket", group=group, mode=mode, wait_seconds=wait_seconds)]
    undo.callback(address.unix.unlink, missing_ok=True)
    undo.callback(listening[0].close)
    if address.bind:
        listening.append(listen_tcp(address.bind, address.port))
        undo.callback(listening[1].close)
    return listening


def listen_unix(
    path: Path, field: str, *, user: int = -1, group: int = -1, mode: int = 0o600, wait_seconds: float = 0.0
) -> socket.socket:
    """-1 leaves the process's own user or group. Raises Invalid for ``field``, as ``prepare`` does."""
    if len(os.fsencode(path)) > MAX_PATH:
        raise Invalid(field, str(path), f"a path of at most {MAX_PATH} bytes")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        prepare(path, field, wait_seconds=wait_seconds)
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        # listen() comes last: nobody can connect before the owner and the mode are right.
        os.chown(path, user, group, follow_symlinks=False)
        path.chmod(mode)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise Invalid(field, str(path), f"a path where a socket can be made ({error.strerror or error})") from None
    except Invalid:
        listener.close()
        raise
    return listener


def listen_tcp(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise Invalid("bind", f"{host}:{port}", f"a free address of this machine ({error.strerror or error})") from None


def prepare(path: Path, field: str, *, wait_seconds: float = 0.0) -> None:
    """Make the folder, and remove the socket of a server that is dead, or ends in ``wait_seconds``. Raises Invalid
    where another server listens, the path is no socket, or another user can write the folder of root's socket."""
    folder = path.parent
    try:
        folder.mkdir(mode=0o755, parents=True)
        folder.chmod(0o755)  # whatever the umask is: members of the group must reach the socket
    except FileExistsError:
        pass
    except OSError as error:
        raise Invalid(field, str(path), f"a path in a folder that can be made ({error.strerror})") from None
    require_own(folder, field)
    _remove_dead(path, field, wait_seconds)


def answers(path: Path) -> bool:
    """Whether a server listens. Raises NotPermitted where this user may not connect."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except PermissionError:
            raise NotPermitted(f"unix:{path}", connect_remedy(path)) from None
        except (TimeoutError, BlockingIOError):
            # The queue of connections is full, so a server has it; connect(2) says EAGAIN at once for a Unix socket.
            return True
        except OSError:
            return False
    return True


def inherited() -> list[socket.socket]:
    """By sd_listen_fds(3), whose variables are removed. Raises Invalid for one that is no listening stream socket."""
    pid, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "0")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()):
        return []
    return [_listening(descriptor) for descriptor in range(_FIRST_INHERITED, _FIRST_INHERITED + int(count))]


def _listening(descriptor: int) -> socket.socket:
    inherited = socket.socket(fileno=descriptor)
    inherited.set_inheritable(False)
    if inherited.type != socket.SOCK_STREAM or not inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise Invalid("LISTEN_FDS", descriptor, "a listening stream socket (ListenStream= in the systemd socket unit)")
    return inherited


def group_id(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        expected = "the name of an existing group, or a number; `pinner-manage setup-host` makes the group pinner"
        return number("[api] group", name, expected)


def number(field: str, text: str, expected: str) -> int:
    """2^32 - 1 is no id: to the kernel it means an unchanged one."""
    if text.isascii() and text.isdecimal() and len(text) <= _ID_DIGITS and int(text) < _NO_ID:
        return int(text)
    raise Invalid(field, text, expected)


def _remove_dead(path: Path, field: str, wait_seconds: float) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise Invalid(field, str(path), "a path of pinner's own: another kind of file is there")
    deadline = time.monotonic() + wait_seconds
    while answers(path):
        if time.monotonic() >= deadline:
            raise Invalid(field, str(path), f"a path where no other running `pinner serve` listens{_listener(path)}")
        time.sleep(_RETRY_SECONDS)
    path.unlink(missing_ok=True)


def _listener(path: Path) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
            return f"; process {peers.of(probe).pid} does"
        except OSError:
            return ""
