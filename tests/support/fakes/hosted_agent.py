"""The agent of a host in memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from support.fakes.snapshot_host import Killed, SnapshotHost

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import Histories, LocalAgent
from pinner.agent.protocol import Progress
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import AgentTrailFile
from pinner.model.errors import HostUnreachable
from pinner.model.guest.guest import Guest
from pinner.model.health import Check
from pinner.model.outcome.blame import Blame
from pinner.model.outcome.measures import HOST, HOST_SERIES, History
from pinner.model.plan.plan import Plan
from pinner.model.run.journal import Run
from pinner.model.snapshot import Snapshot
from pinner.store.journal.journal import StoredJournal


class HostedAgent(LocalAgent):
    """LocalAgent with a real journal; only the host is made up. It exposes its parts to a test.

    Where a write raises Killed, the agent's process has died, and the next call meets the next process.
    """

    def __init__(self, folder: Path, snapshot: Snapshot, now: Callable[[], datetime]) -> None:
        self.host = SnapshotHost(snapshot)
        self.journal = StoredJournal(folder)
        self.trail = AgentTrailFile(snapshot.host, self.journal.chain, SigningKey(folder / "signing.key"), now)
        self.event_queue = HostEventQueue(now)
        self.histories: Histories | None = None
        """None: the history of the host, whose values nobody knows."""
        self.libvirt_fails = ""
        super().__init__(
            self.host.snapshot, self.host, self.journal, now, self.event_queue, self.trail,
            name=snapshot.host, checks=self._checks_of_libvirt, take_inventory=self.host.inventory,
            histories=lambda *call: (self.histories or _unknown)(*call), trace=_nobody_delays,
        )  # fmt: skip

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        with self._mortal():
            return super().apply(plan, run, progress)

    def rollback(self, run: Run, progress: Progress) -> Run:
        with self._mortal():
            return super().rollback(run, progress)

    @contextmanager
    def _mortal(self) -> Iterator[None]:
        """The notes of a killed process that are not written are lost, and the caller hears nothing."""
        try:
            yield
        except Killed:
            self.journal._notes.clear()
            self.journal._noted.clear()
            self.host.break_at = 0
            raise HostUnreachable(self.host.taken.host, "the agent has ended") from None

    def _checks_of_libvirt(self) -> tuple[Check, ...]:
        return (Check("libvirt", not self.libvirt_fails, self.libvirt_fails),)


def _nobody_delays(guest: Guest, _guests: tuple[Guest, ...], seconds: float) -> Blame:
    return Blame(guest.name, seconds, (), (), 0)


def _unknown(
    begin: datetime, _end: datetime, step: int, _subject: str = "", _series: tuple[str, ...] = ()
) -> tuple[History, ...]:
    return (History(HOST, "", begin, step, {series.name: (None,) for series in HOST_SERIES}),)
