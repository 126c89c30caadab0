"""The server of an agent that runs as root and trusts no caller: all is bounded, wrong messages get typed errors."""

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from pinner.agent.protocol import Agent, Progress
from pinner.agent.socket import calls, peers, wire
from pinner.agent.socket.peers import CallerLeft, waits_for
from pinner.model.errors import Busy, NotPermitted, PinnerError, document
from pinner.model.run.journal import Entry
from pinner.repeated import Repeated
from pinner.worker import BeatingThread

LOG = logging.getLogger(__name__)

MAX_CALLS = 64
"""Connections at once, each with a thread started beforehand (about 32 KiB when idle)."""

OWN_CALLS = 8
"""Places of MAX_CALLS for root alone: the API's user can open connections and send nothing."""

MAX_SAME_CALLS = {
    "snapshot": 32,
    "reading": 8,
    "measures": 4,  # one takes up to 90 MiB
    "blame": 2,
    "host_events": 16,
    "explain_drifts": 8,
    "audit_records": 8,
}
"""Long waits must not keep others from a rollback."""

LARGE_BYTES = 256 * 1024
MAX_LARGE_CALLS = 2
"""Calls of more than LARGE_BYTES at once; see wire.MAX_VALUES."""

REQUEST_SECONDS = 10.0
"""The time in which a caller must send a call."""

ANSWER_SECONDS = 30.0
"""The time in which a caller must read an answer."""

PROGRESS_SECONDS = 2.0
"""How long a run waits for a caller that does not read its progress; ANSWER_SECONDS in all."""

END_SECONDS = 110.0
"""How long ``close`` waits for running calls; systemd ends the process after 120 s (TimeoutStopSec)."""

HANGS_SECONDS = 60.0

_RETRY_SECONDS = 0.1
_BEAT_SECONDS = 5.0
_GONE = select.POLLHUP | select.POLLERR
_HUNG_UP = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class AgentServer:
    def __init__(self, agent: Agent, path: Path, user: int, *, request_seconds: float = REQUEST_SECONDS) -> None:
        """Only root, this process's user and ``user`` are answered."""
        self._agent = agent
        self._path = path
        self._users = {0, os.geteuid(), user}
        self._request_seconds = request_seconds
        self._workers = Workers(MAX_CALLS, "agent-call")
        self._of_others = threading.BoundedSemaphore(MAX_CALLS - OWN_CALLS)
        self._same = {name: threading.BoundedSemaphore(count) for name, count in MAX_SAME_CALLS.items()}
        self._large = threading.BoundedSemaphore(MAX_LARGE_CALLS)
        self._lines: set[wire.Line] = set()
        self._closing = False
        self._closed = threading.Event()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            self._socket.bind(str(path))
        finally:
            os.umask(mask)
        if os.geteuid() == 0:
            os.chown(path, user, -1)
        self._socket.listen(MAX_CALLS)
        self._accepting = BeatingThread(self._accept, "agent-accept", HANGS_SECONDS)
        self._pulsing = BeatingThread(self._pulse, "agent-pulse", HANGS_SECONDS)
        self.heartbeats = [self._accepting.heartbeat, self._pulsing.heartbeat]

    def start(self) -> None:
        self._workers.start()
        self._accepting.start()
        self._pulsing.start()

    def close(self) -> None:
        self._closing = True
        for heartbeat in self.heartbeats:
            heartbeat.end()
        self._path.unlink(missing_ok=True)
        os.eventfd_write(self._wake, 1)
        self._accepting.join()
        self._socket.close()
        os.close(self._wake)
        if not self._workers.end(END_SECONDS):
            LOG.error("%d calls have not ended within %g s, and end with the process", self._workers.busy, END_SECONDS)
        self._closed.set()

    def _accept(self) -> None:
        self._socket.setblocking(False)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        failing = Repeated(LOG)
        while not self._closing:
            self.heartbeats[0].beat()
            poll.poll(_BEAT_SECONDS * 1000)
            try:
                peer, _ = self._socket.accept()
                with ExitStack() as failed:
                    failed.enter_context(peer)
                    self._begin(peer)
                    failed.pop_all()
            except BlockingIOError:
                continue
            except (OSError, MemoryError) as error:
                if not self._closing:
                    # No descriptor or memory is left, or the caller has disconnected: later callers get an answer.
                    failing.warn("a caller of the agent cannot be accepted: %s", str(error) or "no memory is left")
                    time.sleep(_RETRY_SECONDS)
                continue
            failing.over("the agent accepts callers again")

    def _pulse(self) -> None:
        while not self._closed.wait(wire.PULSE_SECONDS):
            self.heartbeats[1].beat()
            for line in tuple(self._lines):
                line.pulse()

    def _begin(self, peer: socket.socket) -> None:
        try:
            caller = peers.of(peer)
        except OSError:
            peer.close()
            return
        if caller.uid not in self._users:
            LOG.warning("refused a call to the agent by %s", caller.label)
            self._turn_away(peer, NotPermitted("the agent", "it answers only root and the user of the API"))
        elif not self._hand_over(peer, caller):
            self._turn_away(peer, Busy("the agent", f"it answers {MAX_CALLS} calls already", overdue=False))

    def _hand_over(self, peer: socket.socket, caller: peers.Peer) -> bool:
        """False where no thread is idle, or the caller has no place."""
        if not self._takes_place(caller):
            return False
        begun = False
        try:
            begun = self._workers.begin(partial(self._serve, peer, caller))
        finally:
            if not begun:
                self._give_place_back(caller)
        return begun

    def _takes_place(self, caller: peers.Peer) -> bool:
        return caller.uid == 0 or self._of_others.acquire(blocking=False)

    def _give_place_back(self, caller: peers.Peer) -> None:
        if caller.uid != 0:
            self._of_others.release()

    def _serve(self, peer: socket.socket, caller: peers.Peer) -> None:
        try:
            with peer, waits_for(lambda: self._closing or _hung_up(peer)):
                line = wire.Line(peer)
                try:
                    self._lines.add(line)
                    self._answer(peer, line, caller)
                    line.end()
                finally:
                    self._lines.discard(line)
        finally:
            self._give_place_back(caller)

    def _answer(self, peer: socket.socket, line: wire.Line, caller: peers.Peer) -> None:
        try:
            with ExitStack() as places:
                take_place = partial(self._take_large, places)
                call = wire.receive(peer, wire.MAX_REQUEST, self._request_seconds, take_place, wire.MAX_VALUES)
                places.enter_context(self._slot(calls.name_of(call)))
                if _hung_up(peer, _GONE):
                    # A caller that has given up must be able to rely on it: what has not begun never begins.
                    raise CallerLeft
                result = calls.answer(self._agent, call, calls.SocketCaller(caller, _progress_to(line)))
                del call
            line.send(ANSWER_SECONDS, result=result)
        except PinnerError as error:
            _refuse(line, error)
        except (EOFError, CallerLeft) as error:
            LOG.info("the caller %s got no answer: %s", caller.label, error)
        except Exception:
            LOG.exception("a call to the agent by %s failed", caller.label)
            _refuse(line, PinnerError("the agent failed; its log has the reason"))

    def _take_large(self, places: ExitStack, length: int) -> None:
        if length <= LARGE_BYTES:
            return
        if not self._large.acquire(blocking=False):
            why = f"it answers {MAX_LARGE_CALLS} calls of more than {LARGE_BYTES} bytes already"
            raise Busy("the agent", why, overdue=False)
        places.callback(self._large.release)

    @contextmanager
    def _slot(self, name: str) -> Iterator[None]:
        places = self._same.get(name)
        if places is not None and not places.acquire(blocking=False):
            raise Busy("the agent", f"it answers {MAX_SAME_CALLS[name]} calls of {name} already", overdue=False)
        try:
            yield
        finally:
            if places is not None:
                places.release()

    @staticmethod
    def _turn_away(peer: socket.socket, error: PinnerError) -> None:
        """Never blocks: the answer fits into the buffer of a new connection."""
        with peer:
            _refuse(wire.Line(peer), error, 0.0)


def _refuse(line: wire.Line, error: PinnerError, seconds: float = ANSWER_SECONDS) -> None:
    try:
        line.send(seconds, error=document(error))
    except EOFError:
        LOG.info("the caller has disconnected before it got its answer: %s", error)
    except ValueError:
        # A detail of the error cannot be written as JSON.
        with suppress(EOFError):
            line.send(seconds, error=document(PinnerError(type(error).__name__)))


def _hung_up(peer: socket.socket, events: int = _HUNG_UP) -> bool:
    poll = select.poll()
    poll.register(peer, events)
    return bool(poll.poll(0))


def _progress_to(line: wire.Line) -> Progress:
    """A caller that disconnects or does not read stops no run; a slow one gets a part of the progress."""
    has_left = threading.Event()
    waited = 0.0

    def progress(entry: Entry, total: int) -> None:
        nonlocal waited
        if has_left.is_set():
            return
        began = time.monotonic()
        try:
            line.offer(min(PROGRESS_SECONDS, max(ANSWER_SECONDS - waited, 0.0)), progress=entry, total=total)
        except EOFError:
            has_left.set()
            LOG.info("the caller of run %s has disconnected; the run continues", entry.run)
        waited += time.monotonic() - began

    return progress


Job = Callable[[], None]
_Jobs = SimpleQueue[Job | None]


class Workers:
    """Threads that are started before there is work: `Thread.start` waits for ever where the kernel has no memory."""

    def __init__(self, count: int, name: str) -> None:
        # A new job goes to the thread that was busy last: its memory is warm, and that of the others stays small.
        self._idle: list[_Jobs] = [SimpleQueue() for _ in range(count)]
        self._all = tuple(
            (jobs, threading.Thread(target=self._work, args=(jobs,), name=name, daemon=True)) for jobs in self._idle
        )

    @property
    def busy(self) -> int:
        return len(self._all) - len(self._idle)

    def start(self) -> None:
        for _, thread in self._all:
            thread.start()

    def begin(self, job: Job) -> bool:
        """False where no thread is idle. Never waits."""
        try:
            jobs = self._idle.pop()
        except IndexError:
            return False
        try:
            jobs.put(job)
        except MemoryError:
            self._idle.append(jobs)
            raise
        return True

    def end(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        for jobs, _ in self._all:
            jobs.put(None)
        for _, thread in self._all:
            if thread.ident is not None:  # it was started
                thread.join(max(deadline - time.monotonic(), 0.0))
        return not any(thread.is_alive() for _, thread in self._all)

    def _work(self, jobs: _Jobs) -> None:
        while (job := jobs.get()) is not None:
            try:
                job()
            except Exception:
                with suppress(Exception):  # no memory is left for the log, either
                    LOG.exception("a job failed")
            del job  # it holds the values of its call
            self._idle.append(jobs)
