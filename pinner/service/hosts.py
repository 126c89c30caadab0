"""The hosts that this process serves: an agent for each."""

from collections.abc import Callable, Mapping
from datetime import datetime

from pinner.agent.protocol import Agent
from pinner.model.errors import Invalid, NotFound
from pinner.model.snapshot import Snapshot
from pinner.planning.placement.guest_hints import with_guest_hints
from pinner.store.guest_hints import GuestHints


class Hosts:
    """The agents by host name, and snapshots that include the facts from guest events."""

    def __init__(self, agents: Mapping[str, Agent], hints: GuestHints, now: Callable[[], datetime]) -> None:
        self._agents = dict(agents)
        self._hints = hints
        self._now = now

    def names(self) -> tuple[str, ...]:
        """The names of all hosts, sorted."""
        return tuple(sorted(self._agents))

    def agent(self, host: str) -> Agent:
        """The host's agent. Raises NotFound."""
        if host not in self._agents:
            raise NotFound("host", host, self.names())
        return self._agents[host]

    def require(self, host: str) -> None:
        """Raises NotFound for an unknown host."""
        self.agent(host)

    def only(self, host: str | None) -> str:
        """The host, or the only one where none is named. Raises NotFound, or Invalid where one must be named."""
        if host is None and len(self._agents) == 1:
            return next(iter(self._agents))
        if host is None:
            raise Invalid("host", host, f"one of {', '.join(self.names())}")
        self.require(host)
        return host

    def snapshot(self, host: str, sample_seconds: float) -> Snapshot:
        """A new snapshot of the host, with the hints about its guests. Raises like Agent.snapshot."""
        taken = self.agent(host).snapshot(sample_seconds)
        return with_guest_hints(taken, self._hints.of(host), self._now())
