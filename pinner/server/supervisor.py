"""Waits for the end of a server, and checks its threads. A thread that ends by an exception ends the process with
status 1, and systemd starts a new one; so does one that had no memory to begin, for which Thread.start waits for ever.
While a thread hangs, the watchdog is told nothing (sd_notify(3)), so systemd ends the process."""

import logging
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from pinner import worker
from pinner.model.errors import PinnerError
from pinner.worker import Heartbeat

LOG = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
NEVER_BEGUN = "Exception ignored in thread started by"
"""How Python begins its words about such a thread; since 3.13 without an object."""
END_SECONDS = 60
"""How long the others have after a thread's death, before the kernel ends the process (SIGALRM)."""
READY = "READY=1"
WATCHDOG = "WATCHDOG=1"
STOPPING = "STOPPING=1"
NOTIFY_SECONDS = 30.0


class Supervisor:
    """One for each process, made in the main thread before other threads start."""

    def __init__(self) -> None:
        self._asked = _asked_to_end()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._died = ""
        self._reported: tuple[str, ...] = ()
        self._ignored: deque[sys.UnraisableHookArgs] = deque()
        self._printed = sys.unraisablehook
        threading.excepthook = self._note
        # A thread without memory has none for a function in Python, but enough for this one.
        sys.unraisablehook = self._ignored.append

    def wait(self, heartbeats: Iterable[Heartbeat] = (), *ends: int, ready: bool = True) -> list[int]:
        """Wait for SIGINT or SIGTERM, or until descriptors of ``ends`` can be read; returns those. Raises PinnerError
        where a thread has died, or systemd cannot be told that the service is ``ready``."""
        try:
            if ready:
                _tell_ready()
            return self._wait(tuple(heartbeats), ends)
        finally:
            sys.unraisablehook = self._printed
            self._never_begun()

    def _wait(self, heartbeats: tuple[Heartbeat, ...], ends: tuple[int, ...]) -> list[int]:
        limit = _watchdog_seconds()
        seconds = min(CHECK_SECONDS, limit / 3) if limit else CHECK_SECONDS
        while True:
            readable = select.select([self._asked, self._wake, *ends], [], [], seconds)[0]
            dead = next((thread.wrong for thread in heartbeats if thread.has_died), "")
            if died := self._never_begun() or self._died or dead:
                self._fail(died)
            if readable:
                _notify_if_possible(STOPPING)
                return [end for end in readable if end in ends]
            self._check(heartbeats)

    def fail(self, why: str) -> None:
        self._died = self._died or why
        os.eventfd_write(self._wake, 1)

    def _check(self, heartbeats: Iterable[Heartbeat]) -> None:
        wrong = worker.wrong(heartbeats)
        if not wrong:
            _notify_if_possible(WATCHDOG)
        names = tuple(text.partition(" for ")[0] for text in wrong)
        if names != self._reported:
            self._reported = names
            LOG.error("%s", "; ".join(wrong) or "every thread makes progress again")

    def _never_begun(self) -> str:
        """Other ignored exceptions are printed."""
        failure = ""
        while self._ignored:
            ignored = self._ignored.popleft()
            words = ignored.err_msg or ""
            if words.startswith(NEVER_BEGUN):
                thread = words.removeprefix(NEVER_BEGUN) or repr(ignored.object)
                failure = f"a thread ended before it began, by {ignored.exc_type.__name__}: {thread.strip()}"
            else:
                self._printed(ignored)
        return failure

    def _fail(self, died: str) -> None:
        LOG.critical("%s; this process ends", died)
        _notify_if_possible(STOPPING)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(END_SECONDS)
        raise PinnerError(died)

    def _note(self, ended: threading.ExceptHookArgs) -> None:
        if ended.exc_type is SystemExit:
            return
        name = ended.thread.name if ended.thread else "unknown"
        frames = traceback.extract_tb(ended.exc_traceback)
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        what = " ".join(str(ended.exc_value).split())
        self.fail(f"the thread {name} ended by {ended.exc_type.__name__}: {what}{place}")


def _tell_ready() -> None:
    try:
        notify(READY)
    except OSError as error:
        raise PinnerError(f"systemd cannot be told that the service is ready (NOTIFY_SOCKET): {error}") from error


def _asked_to_end() -> int:
    """A descriptor that can be read after SIGINT or SIGTERM. Call it in the main thread, where Python runs handlers:
    nothing wakes it when another thread gets the signal, or just before a wait."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda *_: None)
    return read


def notify(state: str, seconds: float = NOTIFY_SECONDS) -> None:
    """Raises OSError where systemd does not read for ``seconds``."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            # A name that begins with @ is in the abstract namespace; see unix(7).
            sender.settimeout(seconds)
            sender.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            sender.send(state.encode())


def _notify_if_possible(state: str) -> None:
    with suppress(OSError):
        notify(state, 0.0)


def _watchdog_seconds() -> float | None:
    try:
        seconds = int(os.environ["WATCHDOG_USEC"]) / 1e6
        mine = int(os.environ.get("WATCHDOG_PID", os.getpid())) == os.getpid()
    except (KeyError, ValueError):
        return None
    return seconds if mine and seconds > 0 else None
