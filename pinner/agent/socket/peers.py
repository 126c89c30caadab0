"""The callers of the agent, as the kernel names them."""

import os
import pwd
import socket
import struct
from contextvars import ContextVar
from dataclasses import dataclass

_CREDENTIALS = struct.Struct("3i")
"""struct ucred of unix(7): process id, user id, group id."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A process and its user when it connected (SO_PEERCRED)."""

    pid: int
    uid: int

    @property
    def label(self) -> str:
        """``pinner (uid 991), pid 1234``."""
        return f"{_user_name(self.uid)} (uid {self.uid}), pid {self.pid}"


def of(connection: socket.socket) -> Peer:
    """The process at the other end of a Unix socket. Raises OSError."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(credentials)
    return Peer(pid, uid)


calling: ContextVar[Peer | None] = ContextVar("calling", default=None)
"""The caller that the agent works for now; None: the agent itself."""


def calling_user() -> int:
    return (calling.get() or own()).uid


def own() -> Peer:
    return Peer(os.getpid(), os.geteuid())


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "unknown"
