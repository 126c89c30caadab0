"""The sockets of a server: those that systemd hands over, and the folder in which a server makes its own."""

import os
import socket
import stat
from pathlib import Path

from pinner.model.errors import Invalid

_FIRST = 3


def inherited() -> list[socket.socket]:
    """The listening sockets that systemd has passed to this process, by sd_listen_fds(3); its variables are removed.

    Raises Invalid for a descriptor that is not a listening stream socket.
    """
    pid, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "0")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()):
        return []
    return [_listening(descriptor) for descriptor in range(_FIRST, _FIRST + int(count))]


def _listening(descriptor: int) -> socket.socket:
    found = socket.socket(fileno=descriptor)
    found.set_inheritable(False)
    if found.type != socket.SOCK_STREAM or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise Invalid("LISTEN_FDS", descriptor, "a listening stream socket (ListenStream= in the systemd socket unit)")
    return found


def prepare_folder(folder: Path, option: str) -> None:
    """Create the folder of a socket, or check that only this user can write in it.

    Another user that can write in the folder could replace the socket by one of its own. Raises Invalid, which names
    the ``option``.
    """
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise Invalid(option, str(folder), f"a path in a writable folder ({error.strerror})") from None
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if found.st_uid != os.geteuid() or others_write:
        raise Invalid(option, str(folder), "a path in a folder that belongs to this user and that nobody else writes")
