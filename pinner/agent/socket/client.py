"""The client of an agent in another process. Every wait has an end: without a sign of life (``wire.Line``) for
SILENCE_SECONDS the agent has been stopped, or hangs. Each message is a sign, whichever call it belongs to: the kernel
accepts connections for a stopped agent, and each caller would wait for its own answer, with a thread."""

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pinner import codec
from pinner.agent.protocol import Progress
from pinner.agent.socket import wire
from pinner.model.errors import HostUnreachable, Invalid, Unanswered, revive
from pinner.model.event import HostEvent
from pinner.model.health import AgentHealth
from pinner.model.machine.topology import Topology
from pinner.model.outcome.blame import Blame
from pinner.model.outcome.measures import History
from pinner.model.plan.plan import Plan
from pinner.model.policy import Drift
from pinner.model.reading import HostReading
from pinner.model.run.agent_audit import AgentRecord, ChainHead, SignedHead
from pinner.model.run.journal import Entry, Run
from pinner.model.snapshot import Snapshot
from pinner.unix_connect import connect

SILENCE_SECONDS = 10.0
PATIENCE_SECONDS = 150.0
"""How long a call that is no run may take, besides the seconds of its sample or wait: two calls of libvirt about the
whole host at the default [libvirt] call_timeout, and half a minute."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Refusal:
    code: str
    message: str
    details: dict[str, Any]


class AgentClient:
    """Satisfies Agent; every call opens a connection, so that a long call does not delay others. Raises HostUnreachable
    where a call was not made, Unanswered where it may have been."""

    def __init__(
        self, host: str, path: Path, *, patience: float = PATIENCE_SECONDS, silence: float = SILENCE_SECONDS
    ) -> None:
        self._host = host
        self._path = path
        self._patience = patience
        self._silence = silence
        self._signs = SignsOfLife(silence)

    def snapshot(self, sample_seconds: float) -> Snapshot:
        return self._read(Snapshot, self._call(sample_seconds, call="snapshot", sample_seconds=sample_seconds))

    def reading(self, sample_seconds: float) -> HostReading:
        return self._read(HostReading, self._call(sample_seconds, call="reading", sample_seconds=sample_seconds))

    def topology(self) -> Topology:
        return self._read(Topology, self._call(call="topology"))

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        return self._read(Run, self._call(math.inf, progress, call="apply", plan=plan, run=run))

    def rollback(self, run: Run, progress: Progress) -> Run:
        return self._read(Run, self._call(math.inf, progress, call="rollback", run=run))

    def run(self, run: str) -> Run:
        return self._read(Run, self._call(call="run", run=run))

    def close_run(self, run: Run) -> Run:
        return self._read(Run, self._call(call="close_run", run=run))

    def entries(self, run: str) -> tuple[Entry, ...]:
        return self._read(tuple[Entry, ...], self._call(call="entries", run=run))

    def host_events(self, after: int, timeout: float, process_names: tuple[str, ...] | None) -> tuple[HostEvent, ...]:
        events = self._call(timeout, call="host_events", after=after, timeout=timeout, process_names=process_names)
        return self._read(tuple[HostEvent, ...], events)

    def measures(
        self, begin: datetime, end: datetime, step: int, subject: str = "", series: tuple[str, ...] = ()
    ) -> tuple[History, ...]:
        histories = self._call(call="measures", begin=begin, end=end, step=step, subject=subject, series=series)
        return self._read(tuple[History, ...], histories)

    def blame(self, guest: str, seconds: float) -> Blame:
        return self._read(Blame, self._call(seconds, call="blame", guest=guest, trace_seconds=seconds))

    def health(self) -> AgentHealth:
        return self._read(AgentHealth, self._call(call="health"))

    def has_guest(self, guest: str) -> bool:
        return self._read(bool, self._call(call="has_guest", guest=guest))

    def publish_guest_event(self, guest: str, detail: str) -> None:
        self._call(call="publish_guest_event", guest=guest, detail=detail)

    def publish_policy_set(self) -> None:
        self._call(call="publish_policy_set")

    def explain_drifts(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        given = [codec.plain(drift) for drift in drifts]
        return self._read(tuple[Drift, ...], self._call(call="explain_drifts", drifts=given))

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        self._call(call="set_excluded", guest=guest, excluded=excluded)

    def audit_head(self, centre: ChainHead | None) -> SignedHead:
        return self._read(SignedHead, self._call(call="audit_head", centre=centre))

    def audit_records(self, after: int, limit: int) -> tuple[AgentRecord, ...]:
        return self._read(tuple[AgentRecord, ...], self._call(call="audit_records", after=after, limit=limit))

    def _call(self, seconds: float = 0.0, progress: Progress | None = None, **call: object) -> Any:
        """``seconds``: what the call takes by its nature. Raises the agent's error."""
        deadline = time.monotonic() + seconds + self._patience
        was_asked = False
        try:
            with self._signs.call() as hear, self._connect() as peer:
                was_asked = True
                message = self._exchange(peer, call, deadline, hear, progress)
        except Silent as silent:
            raise self._silent(silent.seconds, "has given no sign of life", was_asked=was_asked) from None
        if message is None:
            raise self._silent(seconds + self._patience, f"has worked on the call {call['call']}", was_asked=True)
        if "error" in message:
            refusal = self._read(_Refusal, message["error"])
            raise revive(refusal.code, refusal.message, refusal.details)
        if "result" not in message:
            raise self._unreadable(Invalid("message", ", ".join(message) or "{}", "a result or an error"))
        return message["result"]

    def _receive(self, peer: socket.socket) -> dict[str, Any]:
        try:
            return wire.receive(peer, seconds=self._silence)
        except Invalid as error:
            raise self._unreadable(error) from None

    def _read(self, kind: type[T], value: object) -> T:
        """A value that this process cannot read is no refusal of the agent, which may have done what it was asked, nor
        is the caller's request wrong."""
        try:
            return codec.read(kind, value)
        except Invalid as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Invalid) -> Unanswered:
        return Unanswered(self._host, f"the answer of its agent at {self._path} cannot be read: {error}")

    def _exchange(
        self,
        peer: socket.socket,
        call: Mapping[str, object],
        deadline: float,
        hear: Callable[[], None],
        progress: Progress | None,
    ) -> dict[str, Any] | None:
        """The result or the error; None after the deadline. Raises TimeoutError where no sign comes."""
        try:
            _send(peer, self._silence, call)
            while time.monotonic() < deadline:
                message = self._receive(peer)
                hear()
                if "progress" in message:
                    if progress is not None:
                        progress(self._read(Entry, message["progress"]), self._read(int, message.get("total")))
                elif "alive" not in message:
                    return message
        except wire.Overdue:
            raise TimeoutError from None
        except (OSError, EOFError) as error:
            raise Unanswered(self._host, f"its agent at {self._path} ended before it answered: {error}") from None
        return None

    def _silent(self, seconds: float, what: str, *, was_asked: bool) -> HostUnreachable:
        kind = Unanswered if was_asked else HostUnreachable
        why = f"its agent at {self._path} {what} for {seconds:.0f} s; check whether it is stopped or overloaded"
        return kind(self._host, why, seconds=round(seconds, 1))

    def _connect(self) -> socket.socket:
        """Raises HostUnreachable, and TimeoutError where a silent agent has its queue full of connections."""
        peer = None
        try:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connect(peer, str(self._path), self._silence)
        except BlockingIOError:
            if peer is not None:
                peer.close()
            raise TimeoutError from None
        except OSError as error:
            if peer is not None:
                peer.close()
            raise HostUnreachable(self._host, f"its agent does not answer at {self._path}: {error}") from None
        return peer


def _send(peer: socket.socket, seconds: float, call: Mapping[str, object]) -> None:
    """An agent that has disconnected may have answered without reading the call. Raises Overdue."""
    try:
        wire.send(peer, seconds, **call)
    except wire.Overdue:
        raise
    except EOFError:
        pass


MAX_UNHEARD = 8
"""Calls that may wait for their first sign of life at once; a further one waits for a place only for a moment."""


class Silent(Exception):
    """The agent has given no sign of life for ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no sign of life for {seconds:.1f} s")
        self.seconds = seconds


class SignsOfLife:
    """Knows whether an agent is silent. While it is, one caller at a time asks it, and the others fail at once."""

    def __init__(self, silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``silence``: seconds without a sign after which the agent is silent."""
        self._silence = silence
        self._clock = clock
        self._changed = threading.Condition()
        self._unheard: dict[object, float] = {}
        """When each call began that waits for its first sign."""
        self._heard = clock()
        self._silent_since: float | None = None

    @contextmanager
    def call(self) -> Iterator[Callable[[], None]]:
        """A call to the agent; gives the function to call at each sign of life.

        Raises Silent without a call, where another caller finds out already. A TimeoutError in the block says that no
        sign came in time; it becomes Silent.
        """
        token = object()
        self._begin(token)
        try:
            yield lambda: self._hear(token)
        except TimeoutError:
            raise Silent(self._lose(token)) from None
        finally:
            with self._changed:
                self._unheard.pop(token, None)
                self._changed.notify_all()

    def _begin(self, token: object) -> None:
        with self._changed:
            self._refuse_if_silent()
            if not self._changed.wait_for(lambda: len(self._unheard) < MAX_UNHEARD, self._silence / 10):
                raise Silent(self._clock() - min(self._unheard.values()))
            self._refuse_if_silent()
            self._unheard[token] = self._clock()

    def _refuse_if_silent(self) -> None:
        now = self._clock()
        if not self._unheard:
            return
        if self._silent_since is not None:
            raise Silent(now - self._silent_since)
        if (waited := now - min(self._unheard.values())) >= self._silence / 2:
            raise Silent(waited)

    def _hear(self, token: object) -> None:
        with self._changed:
            self._heard, self._silent_since = self._clock(), None
            self._unheard.pop(token, None)
            self._changed.notify_all()

    def _lose(self, token: object) -> float:
        with self._changed:
            now = self._clock()
            began = self._unheard.get(token, now - self._silence)
            if now - self._heard >= self._silence:
                self._silent_since = self._silent_since if self._silent_since is not None else began
            return now - (self._silent_since if self._silent_since is not None else began)
