"""The client of an agent in another process. Every wait has an end: without a sign of life (``wire.Line``) for
SILENCE_SECONDS the agent has been stopped, or hangs. Each message is a sign for all calls: the kernel accepts
connections for a stopped agent."""

import inspect
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from pinner import codec
from pinner.agent.protocol import Agent, Progress
from pinner.agent.socket import wire
from pinner.model.errors import HostUnreachable, Invalid, Unanswered, revive
from pinner.model.run.journal import Entry
from pinner.unix_connect import connect

SILENCE_SECONDS = 10.0
PATIENCE_SECONDS = 150.0
"""How long a call that is no run may take, besides its sample or wait: two calls of libvirt about the whole host at the
default [libvirt] call_timeout, and half a minute."""

_LASTING = ("sample_seconds", "timeout", "seconds")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Refusal:
    code: str
    message: str
    details: dict[str, Any]


def _call(method: Callable[Concatenate[Agent, P], T]) -> Callable[Concatenate["AgentClient", P], T]:
    signature = inspect.signature(method)
    kind: type[T] = signature.return_annotation

    @wraps(method)
    def call(client: "AgentClient", /, *given: P.args, **named: P.kwargs) -> T:
        bound = signature.bind(client, *given, **named)
        bound.apply_defaults()
        _, *arguments = bound.arguments.items()
        return client._ask({"call": method.__name__, **dict(arguments)}, kind)

    return call


class AgentClient:
    """An Agent; a connection a call. Raises HostUnreachable if it was not made, Unanswered if it may have been."""

    def __init__(
        self, host: str, path: Path, *, patience: float = PATIENCE_SECONDS, silence: float = SILENCE_SECONDS
    ) -> None:
        self._host = host
        self._path = path
        self._patience = patience
        self._silence = silence
        self._signs = SignsOfLife(silence)

    snapshot = _call(Agent.snapshot)
    topology = _call(Agent.topology)
    reading = _call(Agent.reading)
    apply = _call(Agent.apply)
    rollback = _call(Agent.rollback)
    run = _call(Agent.run)
    close_run = _call(Agent.close_run)
    entries = _call(Agent.entries)
    host_events = _call(Agent.host_events)
    measures = _call(Agent.measures)
    blame = _call(Agent.blame)
    health = _call(Agent.health)
    has_guest = _call(Agent.has_guest)
    publish_guest_event = _call(Agent.publish_guest_event)
    publish_policy_set = _call(Agent.publish_policy_set)
    explain_drifts = _call(Agent.explain_drifts)
    set_excluded = _call(Agent.set_excluded)
    audit_head = _call(Agent.audit_head)
    audit_records = _call(Agent.audit_records)

    def _ask(self, call: dict[str, Any], kind: type[T]) -> T:
        progress: Progress | None = call.pop("progress", None)
        seconds: float = math.inf if progress is not None else sum(call.get(name, 0.0) for name in _LASTING)
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
        return self._read(kind, message["result"])

    def _receive(self, peer: socket.socket) -> dict[str, Any]:
        try:
            return wire.receive(peer, seconds=self._silence)
        except Invalid as error:
            raise self._unreadable(error) from None

    def _read(self, kind: type[T], value: object) -> T:
        """An unreadable answer is no refusal: the agent may have done what it was asked."""
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
        """Raises HostUnreachable, and TimeoutError where a silent agent's queue of connections is full."""
        try:
            with ExitStack() as failed:
                peer = failed.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                connect(peer, str(self._path), self._silence)
                failed.pop_all()
        except BlockingIOError:
            raise TimeoutError from None
        except OSError as error:
            raise HostUnreachable(self._host, f"its agent does not answer at {self._path}: {error}") from None
        return peer


def _send(peer: socket.socket, seconds: float, call: Mapping[str, object]) -> None:
    """An agent that has disconnected may have answered without reading. Raises Overdue."""
    try:
        wire.send(peer, seconds, **call)
    except wire.Overdue:
        raise
    except EOFError:
        pass


MAX_UNHEARD = 8
"""Calls that may wait for their first sign of life at once."""


class Silent(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"no sign of life for {seconds:.1f} s")
        self.seconds = seconds


class SignsOfLife:
    """Knows whether an agent is silent: then one caller at a time asks it, and the others fail at once."""

    def __init__(self, silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._silence = silence
        self._clock = clock
        self._changed = threading.Condition()
        self._unheard: dict[object, float] = {}
        """When each call began that waits for its first sign."""
        self._heard = clock()
        self._silent_since: float | None = None

    @contextmanager
    def call(self) -> Iterator[Callable[[], None]]:
        """A call to the agent; gives the function to call at each sign of life. Raises Silent without a call where
        another caller finds out already; a TimeoutError in the block becomes Silent."""
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
