"""Connections to one libvirtd: calls with a timeout, one at a time on each connection, and libvirt's errors as pinner's
(https://libvirt.org/html/libvirt-virterror.html)."""

import errno
import socket
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import libvirt  # type: ignore[import-untyped]

from pinner.host.virt.timed_calls import TimedCalls, answer_in_time
from pinner.model.errors import ApplyFailed, Busy, Gone, HostUnreachable, NotPermitted, PinnerError

T = TypeVar("T")

_HOST_CALL_FACTOR = 6
"""Times ``call_timeout``, for calls about the whole host: a restarted libvirtd first queries each QEMU."""
_LISTING_PART = 0.1
"""Of ``call_timeout``; then guests are read one by one. libvirt lists hundreds in less."""
_RETRY_SECONDS = 0.1
_MOST_DOMAINS = 512

_DENIED = {
    libvirt.VIR_ERR_OPERATION_DENIED,
    libvirt.VIR_ERR_ACCESS_DENIED,
    libvirt.VIR_ERR_AUTH_FAILED,
    libvirt.VIR_ERR_AUTH_CANCELLED,
    libvirt.VIR_ERR_AUTH_UNAVAILABLE,
}
_BUSY = {
    libvirt.VIR_ERR_OPERATION_TIMEOUT,
    libvirt.VIR_ERR_RESOURCE_BUSY,
    libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
    # Newer versions of libvirt tell an agent that does not answer a command from one that does not answer at all.
    getattr(libvirt, "VIR_ERR_AGENT_COMMAND_TIMEOUT", libvirt.VIR_ERR_AGENT_UNRESPONSIVE),
}

# Without a handler libvirt prints every error to the terminal, although it raises it too.
libvirt.registerErrorHandler(lambda *_: None, None)


class _Link:
    """A connection for one call at a time: a call that hangs blocks others on its connection."""

    def __init__(self, connection: libvirt.virConnect) -> None:
        self.connection = connection
        self.domain: Callable[[str], libvirt.virDomain] = lru_cache(_MOST_DOMAINS)(connection.lookupByUUIDString)


class Connections:
    """Connects at the first call, and again after a lost connection. Threads may share it.

    Each call raises HostUnreachable, NotPermitted, and Busy where it takes too long.
    """

    def __init__(self, uri: str, call_timeout: float) -> None:
        """``call_timeout``: seconds of a call about one guest."""
        self._uri = uri
        self._calls = TimedCalls(call_timeout)
        self.host_calls = TimedCalls(_HOST_CALL_FACTOR * call_timeout)
        self.listings = TimedCalls(_LISTING_PART * call_timeout)
        self._down = False  # whether the latest wait for a restarted libvirtd failed
        self._idle: list[_Link] = []

    def ask_domain(
        self, what: str, uuid: str, work: Callable[[libvirt.virDomain], T], *, change: bool = False, key: str = ""
    ) -> T:
        """``what`` names the subject in errors. Raises Gone too.

        Calls with the same ``key``, by default the UUID, are made one after the other. With ``change``, work that is
        not waited for is still done later.
        """

        def answer() -> T:
            return self._answer(what, lambda link: work(link.domain(uuid)), retry=True)

        return answer_in_time(self._calls, key or uuid, what, answer, change=change)

    def ask_listed(self, what: str, uuid: str, work: Callable[[libvirt.virDomain], T]) -> T:
        """Like ``ask_domain``, for one guest of many: it is not waited for as long."""

        def answer() -> T:
            return self._answer(what, lambda link: work(link.domain(uuid)), retry=False)

        return answer_in_time(self.listings, uuid, what, answer, change=False)

    def ask(self, what: str, work: Callable[[libvirt.virConnect], T], calls: TimedCalls | None = None) -> T:
        """Work on the whole host, by default one of ``host_calls``."""
        what = f"{what} at {self._uri}"

        def answer() -> T:
            return self._answer(what, lambda link: work(link.connection), retry=False)

        return answer_in_time(calls or self.host_calls, what, what, answer, change=False)

    def _answer(self, what: str, work: Callable[[_Link], T], *, retry: bool) -> T:
        """If the connection is lost, the work is repeated over a new one: all calls of this class can be. With
        ``retry`` the first connection waits for a restarted libvirtd."""
        try:
            link = self._idle.pop()
        except IndexError:
            link = self._open(retry=retry)
        try:
            return self._work(link, work)
        except libvirt.libvirtError as error:
            if link.connection.isAlive():
                raise self._translated(what, error) from None
        try:
            return self._work(self._open(retry=True), work)
        except libvirt.libvirtError as error:
            raise self._translated(what, error) from None

    def _work(self, link: _Link, work: Callable[[_Link], T]) -> T:
        try:
            return work(link)
        finally:
            if link.connection.isAlive():
                self._idle.append(link)
            else:
                self._idle.clear()

    def _open(self, *, retry: bool) -> _Link:
        """With ``retry`` it waits for a restarted libvirtd, unless an earlier wait failed."""
        deadline = time.monotonic() + (self._calls.seconds / 2 if retry and not self._down else 0)
        while True:
            try:
                link = _Link(libvirt.open(self._uri))
            except libvirt.libvirtError as error:
                if time.monotonic() >= deadline:
                    self._down = self._down or retry
                    raise self._unreachable(error) from None
            else:
                self._down = False
                return link
            time.sleep(_RETRY_SECONDS)

    def _translated(self, what: str, error: libvirt.libvirtError) -> PinnerError:
        code, message = error.get_error_code(), str(error)
        if code in _DENIED:
            return NotPermitted(what, message)
        if error.get_error_domain() == libvirt.VIR_FROM_RPC:
            return self._unreachable(error)
        if code == libvirt.VIR_ERR_NO_DOMAIN or _errno(error) == errno.ESRCH or message.endswith("is not running"):
            return Gone(what)
        if code in _BUSY:
            return Busy(what, f"libvirt: {message}", overdue=False)
        return ApplyFailed(what, f"libvirt: {message}", libvirt_code=code)

    def _unreachable(self, error: libvirt.libvirtError) -> PinnerError:
        if error.get_error_code() in _DENIED or _errno(error) in (errno.EACCES, errno.EPERM):
            return NotPermitted(f"libvirt at {self._uri}", f"{error}; run pinner as root or in the group libvirt")
        hint = "start libvirtd or set [libvirt] uri"
        return HostUnreachable(socket.gethostname(), f"libvirt does not answer at {self._uri}: {error}; {hint}")


def _errno(error: libvirt.libvirtError) -> int:
    """The number of a VIR_ERR_SYSTEM_ERROR, else 0."""
    return error.get_int1() if error.get_error_code() == libvirt.VIR_ERR_SYSTEM_ERROR else 0
