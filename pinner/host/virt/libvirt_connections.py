"""Connections to one libvirtd: calls with a timeout, and libvirt's errors as pinner's
(https://libvirt.org/html/libvirt-virterror.html).

A running call cannot be cancelled. So all calls with the same key, overdue ones too, run in the order of the requests:
a late change never runs after its undo. A caller waits for an answer, not for a thread: Python 3.11's `Thread.join`
fails if two threads wait for the same one, or one asks `is_alive`."""

import errno
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache, partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import libvirt  # type: ignore[import-untyped]

from pinner.model.errors import ApplyFailed, Busy, Gone, HostUnreachable, NotPermitted, PinnerError

T = TypeVar("T")

MAX_PENDING = 512
"""Calls with one key that wait for an overdue one: the undo of a guest has one call for each vCPU."""

_MAX_TIMEOUTS = 2
"""After so many in a row, calls with the key do not wait: one timeout for a call and one for its undo."""

KEEP_SECONDS = 5.0

_Job = Callable[[], Callable[[], None]]
"""Does the work, and returns what gives the answer to the caller."""


class TimedCalls:
    """Makes each call in a thread that no other call occupies. Threads may share it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._last: dict[str, Future[Any]] = {}
        self._timeouts: dict[str, int] = {}
        self._overdue_since: dict[str, float] = {}
        self._idle: list[SimpleQueue[_Job]] = []

    @property
    def overdue(self) -> float | None:
        now = time.monotonic()
        with self._lock:
            seconds = [now - at for key, at in self._overdue_since.items() if self._runs(key)]
        return max(seconds, default=None)

    def _runs(self, key: str) -> bool:
        latest = self._last.get(key)
        return latest is not None and not latest.done()

    def call(self, key: str, work: Callable[[], T], *, later: bool = True) -> T:
        """Raises the work's error, or TimeoutError: the work is then done later. Without ``later``, work that would not
        be waited for is not done: only a change must still be made, or undone."""
        answer: Future[T] = Future()
        with self._lock:
            earlier = self._last.get(key)
            timeouts = self._timeouts.get(key, 0) if self._runs(key) else 0
            if timeouts >= (MAX_PENDING if later else _MAX_TIMEOUTS):
                raise TimeoutError
            self._start(lambda: _work(work, answer, earlier))
            self._last[key] = answer
        with suppress(TimeoutError):
            answer.exception(self.seconds if timeouts < _MAX_TIMEOUTS else 0)
        with self._lock:
            if not answer.done():
                self._timeouts[key] = timeouts + 1
                if timeouts == 0:
                    self._overdue_since[key] = time.monotonic() - self.seconds
                raise TimeoutError
            self._timeouts.pop(key, None)
            self._overdue_since.pop(key, None)
            if self._last.get(key) is answer:
                del self._last[key]
        return answer.result()

    def _start(self, job: _Job) -> None:
        if self._idle:
            self._idle.pop().put(job)
            return
        jobs: SimpleQueue[_Job] = SimpleQueue()
        jobs.put(job)
        threading.Thread(target=self._serve, args=(jobs,), name="timed call", daemon=True).start()

    def _serve(self, jobs: "SimpleQueue[_Job]") -> None:
        while True:
            try:
                job = jobs.get(timeout=KEEP_SECONDS)
            except Empty:
                with self._lock:
                    if jobs in self._idle:
                        self._idle.remove(jobs)
                        return
                continue  # a call took this thread at the last moment
            give_answer = job()
            # First, so that the caller's next call finds this thread.
            with self._lock:
                self._idle.append(jobs)
            give_answer()
            del job, give_answer  # they hold the caller's values


def _work(work: Callable[[], T], answer: "Future[T]", earlier: "Future[Any] | None") -> Callable[[], None]:
    if earlier is not None:
        earlier.exception()
    try:
        result = work()
    except BaseException as error:  # the caller's thread raises it again
        return partial(answer.set_exception, error)
    return partial(answer.set_result, result)


def answer_in_time(calls: TimedCalls, key: str, what: str, answer: Callable[[], T], *, change: bool) -> T:
    try:
        return calls.call(key, answer, later=change)
    except TimeoutError:
        why = f"no answer from libvirt within {calls.seconds:g} s ([libvirt] call_timeout)"
        raise Busy(what, why, overdue=True) from None


_HOST_CALL_FACTOR = 6
"""Calls about the whole host get so many times ``call_timeout``: a restarted libvirtd first queries each QEMU."""
_LISTING_PART = 0.1
"""After this part of ``call_timeout`` guests are read one by one. libvirt lists hundreds in less."""
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
    """Connects at the first call, and again after a lost connection. Threads may share it. Each call raises
    HostUnreachable, NotPermitted, and Busy where it takes too long."""

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
        """Raises Gone too. Calls with the same ``key``, by default the UUID, come one after the other; with ``change``,
        overdue work is still done."""

        def answer() -> T:
            return self._answer(what, lambda link: work(link.domain(uuid)), retry=True)

        return answer_in_time(self._calls, key or uuid, what, answer, change=change)

    def ask_listed(self, what: str, uuid: str, work: Callable[[libvirt.virDomain], T]) -> T:
        """As ``ask_domain``, for one guest of many: it is not waited for as long."""

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
        """Over a lost connection the work is repeated: all calls of this class can be."""
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
    return error.get_int1() if error.get_error_code() == libvirt.VIR_ERR_SYSTEM_ERROR else 0
