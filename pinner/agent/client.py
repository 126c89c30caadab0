"""The unprivileged half's way to the agent: an Agent whose calls cross the Unix socket."""

import socket
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pinner import codec
from pinner.agent import wire
from pinner.agent.protocol import Progress
from pinner.model.drift import Drift
from pinner.model.errors import HostUnreachable, Unanswered, revive
from pinner.model.event import HostEvent
from pinner.model.journal import Entry, Run
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot


class AgentClient:
    """Satisfies Agent. Every call opens a connection of its own, so that a long one holds up no other."""

    def __init__(self, host: str, path: Path) -> None:
        self._host = host
        self._path = path

    def snapshot(self, sample_seconds: float) -> Snapshot:
        """See Agent."""
        return codec.read(Snapshot, self._call(call="snapshot", sample_seconds=sample_seconds))

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

    def host_events(self, after: int, timeout: float, names: tuple[str, ...]) -> tuple[HostEvent, ...]:
        """See Agent."""
        return codec.read(tuple[HostEvent, ...], self._call(call="news", after=after, timeout=timeout, names=names))

    def knows(self, guest: str) -> bool:
        """See Agent."""
        return codec.read(bool, self._call(call="knows", guest=guest))

    def publish_guest_event(self, guest: str, words: str) -> None:
        """See Agent."""
        self._call(call="tell", guest=guest, words=words)

    def policy_set(self) -> None:
        """See Agent."""
        self._call(call="policy_set")

    def explain(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        """See Agent."""
        asked = [codec.plain(drift) for drift in drifts]
        return codec.read(tuple[Drift, ...], self._call(call="explain", drifts=asked))

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        """See Agent."""
        self._call(call="set_exempt", guest=guest, excluded=excluded)

    def _call(self, progress: Progress | None = None, **call: object) -> Any:
        try:
            with self._connect() as peer:
                wire.send(peer, **call)
                while "progress" in (message := wire.receive(peer)):
                    if progress is not None:
                        progress(codec.read(Entry, message["progress"]), message["total"])
        except (OSError, EOFError) as error:
            raise Unanswered(self._host, f"its agent at {self._path} ended before it answered: {error}") from None
        if "error" in message:
            raise revive(**message["error"])
        return message["result"]

    def _connect(self) -> Connection:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.connect(str(self._path))
        except OSError as error:
            peer.close()
            raise HostUnreachable(self._host, f"its agent does not answer at {self._path}: {error}") from None
        return Connection(peer.detach())
