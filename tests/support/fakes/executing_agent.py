"""An agent in memory that applies and rolls back as the real one does, on a host in memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from support.fakes.in_memory_agent import InMemoryAgent
from support.fakes.in_memory_host import InMemoryHost

from pinner.agent.protocol import Progress
from pinner.apply import executor
from pinner.apply.ports import Admission
from pinner.apply.recover import RecoveryPolicy, recover
from pinner.model.change import Target
from pinner.model.errors import HostUnreachable
from pinner.model.plan.plan import Plan
from pinner.model.run.journal import Run
from pinner.model.snapshot import Snapshot


class Killed(BaseException):
    """The agent's process dies."""


class ExecutingAgent(InMemoryAgent):
    """``host`` is the host; ``ended`` are the targets that had ended by the agent's own inventory, and ``unread``
    the guests that it could not read."""

    def __init__(self, folder: Path, snapshot: Snapshot, now: Callable[[], datetime]) -> None:
        super().__init__(folder, snapshot, now)
        self.host = InMemoryHost()
        self.ended: set[Target] = set()
        self.unread: dict[str, str] = {}
        self.policy: RecoveryPolicy = "back"

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        self._require_new(run)
        with self._dying():
            return executor.apply(plan, run, self.host, self.journal, self.now, progress, self._admit)

    def rollback(self, run: Run, progress: Progress) -> Run:
        self._require_new(run)
        with self._dying():
            return executor.rollback(run, self.host, self.journal, self.now, progress)

    @contextmanager
    def _dying(self) -> Iterator[None]:
        """Where the process is killed, its notes that are not written are lost, and the caller hears nothing."""
        try:
            yield
        except Killed:
            self.journal._notes.clear()
            self.journal._noted.clear()
            raise HostUnreachable(self.taken.host, "the agent has ended") from None

    def recover(self) -> None:
        """End the run whose process was killed."""
        recover(self.host, self.journal, self.policy, self.now)

    def _admit(self, plan: Plan, _run: Run) -> Admission:
        return Admission(plan, frozenset(self.ended), self.unread)
