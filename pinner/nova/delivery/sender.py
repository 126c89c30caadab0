"""Sends Nova's events to each host's pinner server, and asks the destinations of migrations for their CPUs."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from pinner.model.cpuset import CpuSet
from pinner.model.errors import HostUnreachable, Invalid, PinnerError
from pinner.model.event import GuestEventOutcome
from pinner.model.run.audit import Caller
from pinner.nova.broker.notification import NovaEvent
from pinner.service.remote.remote import RemoteService

LOG = logging.getLogger(__name__)

WAIT_SECONDS = 0.3
"""How long releases wait for a destination that was just asked."""
PATIENCE = 5.0
"""Seconds in which a destination may answer; a late answer helps later releases."""
KEEP_SECONDS = 60.0
"""How long an answer, or a missing one, is remembered."""
MAX_OPEN = 64
"""Open questions; beyond, a destination counts as one that does not answer."""


@dataclass
class _Question:
    asked_at: float
    answered: threading.Event = field(default_factory=threading.Event)
    cpus: CpuSet = CpuSet()

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() < self.asked_at + KEEP_SECONDS


class Destinations:
    """Asks each destination once within KEEP_SECONDS. Several threads may use it."""

    def __init__(self, ask: Callable[[str], CpuSet]) -> None:
        self._ask = ask
        self._guard = threading.Lock()
        self._questions: dict[str, _Question] = {}

    def cpus(self, host: str) -> CpuSet:
        """Empty if the host has not answered WAIT_SECONDS after the question."""
        question = self._question(host)
        question.answered.wait(max(question.asked_at + WAIT_SECONDS - time.monotonic(), 0.0))
        return question.cpus

    def _question(self, host: str) -> _Question:
        with self._guard:
            self._questions = {name: known for name, known in self._questions.items() if known.is_fresh}
            if host in self._questions:
                return self._questions[host]
            question = self._questions[host] = _Question(time.monotonic())
            open_ones = sum(not known.answered.is_set() for known in self._questions.values())
        if open_ones > MAX_OPEN:
            question.answered.set()
        else:
            # A thread of its own, because a server that sends its answer slowly would hold the release.
            work = threading.Thread(target=self._answer, args=(host, question), name="destination", daemon=True)
            work.start()
        return question

    def _answer(self, host: str, question: _Question) -> None:
        try:
            question.cpus = self._ask(host)
        except PinnerError as error:
            LOG.info("destination %s did not say which CPUs it has: %s", host, error)
        except Exception:  # an error in this program must not end without a word
            LOG.exception("destination %s could not be asked for its CPUs", host)
        finally:
            question.answered.set()


HOST = "{host}"
NO_CALLER = Caller("", "", "")
"""The server takes the caller from the token."""
ANSWER_TIMEOUT = 30.0
"""Seconds for a whole answer. The release of a large guest takes one or two."""
MAX_ANSWER = 4 * 1024 * 1024
"""Bytes of an answer. The topology of a host with 8192 CPUs has about 1 MiB."""


class Sender:
    def __init__(self, server: str, token_file: str | None) -> None:
        """``token_file`` has the servers' token; ``{host}`` in it and in ``server`` is the host's name. Raises Invalid
        for a wrong URL, an unreadable file, and one token of all hosts: whoever can send a notification names a host,
        and so would choose the server that gets it."""
        self._server = server
        self._token_file = token_file or ""
        self._guard = threading.Lock()
        self._connected = lru_cache(256)(self._connect)
        self._destinations = Destinations(self._ask_cpus)
        _require_url(server.replace(HOST, "host"))
        if HOST in server and self._token_file and HOST not in self._token_file:
            expected = "a file for each host, such as /etc/pinner/tokens/{host}, because server contains {host}"
            raise Invalid("[nova_listener] token_file", self._token_file, expected)
        if HOST not in self._token_file:
            self._token("")

    def send(self, nova_event: NovaEvent) -> GuestEventOutcome:
        """Raises PinnerError."""
        event = nova_event.guest_event
        if nova_event.destination:
            # The release leaves out the CPUs that the destination lacks; without an answer it leaves out none.
            event = replace(event, cpus=self._destinations.cpus(nova_event.destination))
        return self._server_of(nova_event.host).guest_event(nova_event.host, event, NO_CALLER)

    def _server_of(self, host: str) -> RemoteService:
        # lru_cache alone would connect once for each thread that asks at the same time.
        with self._guard:
            return self._connected(host)

    def _ask_cpus(self, host: str) -> CpuSet:
        with closing(self._connect(host, PATIENCE)) as server:
            return server.topology(host).online

    def _connect(self, host: str, patience: float = ANSWER_TIMEOUT) -> RemoteService:
        return RemoteService(self._server.replace(HOST, host), self._token(host), patience, limit=MAX_ANSWER)

    def _token(self, host: str) -> str | None:
        if not self._token_file:
            return None
        if "/" in host:
            # The name comes from a notification. It must not select a file outside the folder.
            raise Invalid("host", host, "the name of a host")
        file = self._token_file.replace(HOST, host)
        try:
            return Path(file).read_text("utf-8").strip() or None
        except (OSError, UnicodeDecodeError, ValueError) as error:
            why = f"a readable file ({error})"
            if not host:
                raise Invalid("[nova_listener] token_file", file, why) from None
            raise HostUnreachable(host, f"[nova_listener] token_file: {file!r} is not {why}") from None


def _require_url(server: str) -> None:
    """Raises Invalid: else each event would fail."""
    try:
        RemoteService(server, None, PATIENCE).close()
    except Invalid as error:
        raise Invalid("[nova_listener] server", error.details["value"], error.details["expected"]) from None
