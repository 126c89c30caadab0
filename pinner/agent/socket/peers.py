"""The caller that the agent works for, as the kernel names it, and waits that end when it disconnects."""

import os
import pwd
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_CREDENTIALS = struct.Struct("3i")
"""struct ucred of unix(7): process id, user id, group id."""
_STEP_SECONDS = 0.5
"""How long a wait may outlast the caller."""
_is_left: ContextVar[Callable[[], bool]] = ContextVar("is_left", default=lambda: False)


@dataclass(frozen=True, slots=True)
class Peer:
    """A process and its user when it connected (SO_PEERCRED)."""

    pid: int
    uid: int

    @property
    def label(self) -> str:
        """For example ``pinner (uid 991), pid 1234``."""
        return f"{_user_name(self.uid)} (uid {self.uid}), pid {self.pid}"


def of(connection: socket.socket) -> Peer:
    """Raises OSError."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(credentials)
    return Peer(pid, uid)


calling: ContextVar[Peer | None] = ContextVar("calling", default=None)
"""None: the agent itself."""


def calling_user() -> int:
    return (calling.get() or own()).uid


def own() -> Peer:
    return Peer(os.getpid(), os.geteuid())


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "unknown"


class CallerLeft(Exception):
    def __init__(self) -> None:
        super().__init__("it has disconnected")


@contextmanager
def waits_for(is_left: Callable[[], bool]) -> Iterator[None]:
    token = _is_left.set(is_left)
    try:
        yield
    finally:
        _is_left.reset(token)


def require_caller() -> None:
    """For work in many parts. Raises CallerLeft."""
    if _is_left.get()():
        raise CallerLeft


def sleep(seconds: float) -> None:
    """Raises CallerLeft."""
    for step in steps(seconds):
        time.sleep(step)


def steps(seconds: float) -> Iterator[float]:
    """The parts of a wait, at least one; wait for each. Raises CallerLeft."""
    deadline = time.monotonic() + seconds
    remaining = seconds
    while True:
        yield min(max(remaining, 0.0), _STEP_SECONDS)
        require_caller()
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return
