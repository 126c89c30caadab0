"""The agent's audit trail, and the limits of the records that a caller can cause: nobody fills the disk."""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from pinner.agent import limits
from pinner.agent.socket import peers
from pinner.agent.trail.signing import SigningKey
from pinner.model.errors import Busy, Invalid, NovaConflict, PinnerError, Refused, RunConflict, StoreUnavailable
from pinner.model.run import agent_audit
from pinner.model.run.agent_audit import AgentAction, AgentEvent, AgentRecord, ChainHead, SignedHead
from pinner.model.run.journal import Run

MAX_REFUSALS = 60
"""Refusals in a window that get a record each."""
WINDOW_SECONDS = 60.0
"""A window starts with an event."""

MAX_IDLE = 60
"""Calls in a window that did nothing, and are accepted and recorded."""


class _Window:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends = 0.0
        self._count = 0

    def add(self) -> int:
        if (now := self._clock()) >= self._ends:
            self._ends, self._count = now + WINDOW_SECONDS, 0
        self._count += 1
        return self._count

    def count(self) -> int:
        return self._count if self._clock() < self._ends else 0


class RefusalLimit:
    """Several threads may use one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._window = _Window(clock)
        self._guard = threading.Lock()
        self._left_out = 0

    def add(self) -> bool:
        with self._guard:
            if self._window.add() <= MAX_REFUSALS:
                return True
            self._left_out += 1
            return False

    def take_left_out(self) -> int:
        """The refusals without a record in windows that have ended; reported once."""
        with self._guard:
            if self._window.count():
                return 0
            left_out, self._left_out = self._left_out, 0
            return left_out


class CallLimit:
    """A window for each user, so that nobody uses up root's. Several threads may use it."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most: int = MAX_IDLE, what: str = "did nothing"
    ) -> None:
        self._clock = clock
        self._most = most
        self._what = what
        self._guard = threading.Lock()
        self._windows: dict[tuple[int, str], _Window] = {}
        """The key has the caller's user id."""

    def add(self, subject: str = "") -> None:
        with self._guard:
            self._windows = {key: window for key, window in self._windows.items() if window.count()}
            self._windows.setdefault((peers.calling_user(), subject), _Window(self._clock)).add()

    def is_full(self, subject: str = "") -> bool:
        with self._guard:
            window = self._windows.get((peers.calling_user(), subject))
            return window is not None and window.count() >= self._most

    def require(self, subject: str = "") -> None:
        if self.is_full(subject):
            why = f"{self._most} calls of the last {WINDOW_SECONDS:g} s {self._what}"
            raise Busy("the agent", why, overdue=False)


LOG = logging.getLogger(__name__)

MAX_PAGE = 1000
MAX_HEADS = 600
"""Heads of the centre in a window: one at the end of each run, once a minute, and up to 100 for an export."""
MAX_MARKS = 300
"""Guests excluded or included in a window: somebody may exclude every guest of a large host."""
_REFUSALS = (Refused, Invalid, RunConflict, NovaConflict)
"""A caller asked for something that the agent does not do."""
_HASH = re.compile("[0-9a-f]{64}")


class Chain(Protocol):
    def append(self, *events: AgentEvent) -> None:
        """The records are on disk when it returns."""

    def append_new(self, event: AgentEvent) -> None:
        """Unless the last event of its action has the same target and ``after``."""

    def heads(self) -> tuple[ChainHead, ChainHead]:
        """The chain's own, and the last one of the centre's trail in it."""

    def records(self, after: int, limit: int) -> tuple[AgentRecord, ...]: ...


class AgentTrailFile:
    def __init__(
        self,
        host: str,
        chain: Chain,
        key: SigningKey,
        now: Callable[[], datetime],
        refusal_limit: RefusalLimit | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins the chain, or notes in it that the key has changed. Where it cannot be written, every use raises
        StoreUnavailable; reading goes on."""
        self._limit = refusal_limit or RefusalLimit()
        self._heads = CallLimit(clock, MAX_HEADS, "reported heads of the centre")
        self._marks = CallLimit(clock, MAX_MARKS, "marked guests")
        self._host = host
        self._chain = chain
        self._key = key
        self._now = now
        try:
            chain.append_new(self._event(AgentAction.KEY_SET, host, key.public, "set"))
        except StoreUnavailable as error:
            LOG.error("the agent's audit trail cannot be written: %s", error)

    def head(self, centre: ChainHead | None) -> SignedHead:
        self._log_left_out()
        if centre is not None and centre.seq:
            limits.require_number("centre.seq", centre.seq)
            if not _HASH.fullmatch(centre.hash):
                raise Invalid("centre.hash", centre.hash[:80], "64 hexadecimal digits")
            self._report(centre)
        own, seen = self._chain.heads()
        at = self._now().isoformat(timespec="microseconds")
        return self._key.sign(SignedHead(self._host, own.seq, own.hash, seen.seq, seen.hash, at, "", ""))

    def records(self, after: int, limit: int) -> tuple[AgentRecord, ...]:
        if not 1 <= limit <= MAX_PAGE:
            raise Invalid("limit", limit, f"a number from 1 to {MAX_PAGE}")
        limits.require_number("after", after)
        return self._chain.records(after, limit)

    def _report(self, centre: ChainHead) -> None:
        """Raises Busy where the window takes no more: an answer without the record would vouch for less than was asked
        for."""
        if self._chain.heads()[1] != centre:
            self._heads.require()
            self._heads.add()
            self._chain.append_new(self._event(AgentAction.CENTRE_HEAD, str(centre.seq), centre.hash, "reported"))

    @contextmanager
    def marking(self, guest: str, *, excluded: bool) -> Iterator[None]:
        """Record a change of the guest's metadata before the block makes it, and its failure where the block raises.
        Raises Busy and StoreUnavailable: nothing is changed then, or the trail lacks the failure."""
        result = "excluded" if excluded else "included"
        self._marks.require()
        self._mark(guest, result)
        try:
            yield
        except Exception as error:
            try:
                self._mark(guest, f"{result}: failed, {_code(error)}")
            except StoreUnavailable as unavailable:
                # The caller must not take it for a failure that the trail has.
                LOG.warning("guest %s was not %s: %s", guest, result, error)
                raise unavailable from error
            raise

    def _mark(self, guest: str, result: str) -> None:
        self._marks.add()
        self._chain.append(self._event(AgentAction.GUEST_EXCLUDE, guest, "", result))

    @contextmanager
    def refusals(self, run: Run, has_run: Callable[[str], bool]) -> Iterator[None]:
        """Record that the run was refused where the block raises; a later refusal is in the record of the run's end. Of
        many refusals, most are only counted."""
        repeated = has_run(run.id)
        try:
            yield
        except Exception as error:
            self._log_left_out()
            if self._limit.add():
                self._refused(run, error, lambda: not repeated and has_run(run.id))
            raise

    def _refused(self, run: Run, error: Exception, has_begun: Callable[[], bool]) -> None:
        if isinstance(error, _REFUSALS):
            claimed = limits.shown(run.id), limits.shown(run.actor)
            peer = run.peer or _caller() or "pinner"
            LOG.warning("refused run %s, claimed by %r, called by %s: %s", *claimed, peer, error)
        # The error of the run matters to the caller, also where the journal cannot be written.
        with suppress(StoreUnavailable):
            if not has_begun():
                self._chain.append(agent_audit.refused(_cut(run), _code(error), self._now()))

    def _log_left_out(self) -> None:
        if left_out := self._limit.take_left_out():
            LOG.warning("refused %d more runs in %g seconds, without a record of each", left_out, WINDOW_SECONDS)

    def _event(self, action: AgentAction, target: str, after: str, result: str) -> AgentEvent:
        return AgentEvent(self._now(), "", action, target, "", after, result, "", _caller())


def _cut(run: Run) -> Run:
    """A refused run may claim anything."""
    cut = limits.cut
    return replace(run, id=cut(run.id), plan=cut(run.plan), undoes=cut(run.undoes), actor=cut(run.actor))


def _code(error: Exception) -> str:
    return error.code if isinstance(error, PinnerError) else PinnerError.code


def _caller() -> str:
    """Empty: the agent itself."""
    return caller.label if (caller := peers.calling.get()) else ""
