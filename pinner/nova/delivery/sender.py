"""Sends Nova's events to the pinner server of each host."""

import threading
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pinner.model.cpuset import CpuSet
from pinner.model.errors import HostUnreachable, Invalid
from pinner.model.policy.event import GuestEventOutcome
from pinner.model.run.audit import Caller
from pinner.nova.broker.notification import NovaEvent
from pinner.nova.delivery.destinations import PATIENCE, Destinations
from pinner.service.remote.remote import RemoteService

HOST = "{host}"
"""In options: the name of the host that an event is about."""
NO_CALLER = Caller("", "", "")
"""The server takes the caller from the token instead."""
ANSWER_TIMEOUT = 30.0
"""Seconds for a whole answer. The release of a large guest takes one or two."""
MAX_ANSWER = 4 * 1024 * 1024
"""The most bytes of an answer. The topology of a host with 8192 CPUs has about 1 MiB."""


class Sender:
    """Sends events to the pinner server of each host."""

    def __init__(self, server: str, token_file: str | None) -> None:
        """``server`` is the URL of the servers, ``token_file`` the file with their token.

        ``{host}`` in both is replaced by the host's name. Raises Invalid for a wrong URL, for a file that cannot be
        read, and for one token of all hosts: the names come from notifications, and whoever can send one would choose
        the server that gets the token.
        """
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
        """Send an event to the server of its host. Raises PinnerError."""
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
        """The online CPUs of a destination. Raises PinnerError."""
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
    """Raise Invalid for a URL of which no server can answer: each event would fail only when it comes."""
    try:
        RemoteService(server, None, PATIENCE).close()
    except Invalid as error:
        raise Invalid("[nova_listener] server", error.details["value"], error.details["expected"]) from None
