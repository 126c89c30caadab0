"""The client of an agent in another process: an Agent whose calls go through the Unix socket."""

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from pinner import codec
from pinner.agent import wire
from pinner.agent.protocol import Progress
from pinner.model.agent_audit import AgentRecord, ChainHead, SignedHead
from pinner.model.drift import Drift
from pinner.model.errors import HostUnreachable, Unanswered, revive
from pinner.model.event import HostEvent
from pinner.model.journal import Entry, Run
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot
from pinner.model.topology import Topology


class AgentClient:
    """Satisfies Agent. Every call opens its own connection, so that a long call does not delay others."""

    def __init__(self, host: str, path: Path) -> None:
        self._host = host
        self._path = path

    def snapshot(self, sample_seconds: float) -> Snapshot:
        """See Agent."""
        return codec.read(Snapshot, self._call(call="snapshot", sample_seconds=sample_seconds))

    def topology(self) -> Topology:
        """See Agent."""
        return codec.read(Topology, self._call(call="topology"))

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        """See Agent."""
        return codec.read(Run, self._call(progress, call="apply", plan=plan, run=run))

    def rollback(self, run: Run, progress: Progress) -> Run:
        """See Agent."""
        return codec.read(Run, self._call(progress, call="rollback", run=run))

    def run(self, run: str) -> Run:
        """See Agent."""
        return codec.read(Run, self._call(call="run", run=run))

    def entries(self, run: str) -> tuple[Entry, ...]:
        """See Agent."""
        return tuple(codec.read(Entry, entry) for entry in self._call(call="entries", run=run))

    def host_events(self, after: int, timeout: float, process_names: tuple[str, ...]) -> tuple[HostEvent, ...]:
        """See Agent."""
        found = self._call(call="host_events", after=after, timeout=timeout, process_names=process_names)
        return codec.read(tuple[HostEvent, ...], found)

    def has_guest(self, guest: str) -> bool:
        """See Agent."""
        return codec.read(bool, self._call(call="has_guest", guest=guest))

    def publish_guest_event(self, guest: str, detail: str) -> None:
        """See Agent."""
        self._call(call="publish_guest_event", guest=guest, detail=detail)

    def publish_policy_set(self) -> None:
        """See Agent."""
        self._call(call="publish_policy_set")

    def explain(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        """See Agent."""
        given = [codec.plain(drift) for drift in drifts]
        return codec.read(tuple[Drift, ...], self._call(call="explain", drifts=given))

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """See Agent."""
        self._call(call="set_excluded", guest=guest, excluded=excluded)

    def audit_head(self, centre: ChainHead | None) -> SignedHead:
        """See Agent."""
        return codec.read(SignedHead, self._call(call="audit_head", centre=centre))

    def audit_records(self, after: int, limit: int) -> tuple[AgentRecord, ...]:
        """See Agent."""
        return codec.read(tuple[AgentRecord, ...], self._call(call="audit_records", after=after, limit=limit))

    def _call(self, progress: Progress | None = None, **call: object) -> Any:
        try:
            with self._connect() as peer:
                with suppress(EOFError):  # the agent may have answered without reading the call
                    wire.send(peer, **call)
                while "progress" in (message := wire.receive(peer)):
                    if progress is not None:
                        progress(codec.read(Entry, message["progress"]), message["total"])
        except (OSError, EOFError) as error:
            raise Unanswered(self._host, f"its agent at {self._path} ended before it answered: {error}") from None
        if "error" in message:
            raise revive(**message["error"])
        return message["result"]

    def _connect(self) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.connect(str(self._path))
        except OSError as error:
            peer.close()
            raise HostUnreachable(self._host, f"its agent does not answer at {self._path}: {error}") from None
        return peer
