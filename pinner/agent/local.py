"""The agent in this process: the embedded default, and what an agent's server serves."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from pinner.agent.newsroom import Newsroom
from pinner.agent.protocol import Progress
from pinner.apply import executor
from pinner.apply.ports import Host, Journal
from pinner.model.drift import Drift, News
from pinner.model.journal import Entry, Run
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot


class Machine(Host, Protocol):
    """A host, with what no apply needs."""

    def explain(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        """See Agent."""

    def set_exempt(self, guest: str, *, exempt: bool) -> None:
        """See Agent."""


class LocalAgent:
    """Satisfies Agent with a host and a journal of this machine."""

    def __init__(
        self,
        take: Callable[[float], Snapshot],
        host: Machine,
        journal: Journal,
        now: Callable[[], datetime],
        newsroom: Newsroom,
    ) -> None:
        """``take`` makes a snapshot from two samples that lie so many seconds apart."""
        self._take = take
        self._host = host
        self._journal = journal
        self._now = now
        self._newsroom = newsroom

    def close(self) -> None:
        """Let everybody go who waits for news."""
        self._newsroom.close()

    def snapshot(self, sample_seconds: float) -> Snapshot:
        """See Agent."""
        return self._take(sample_seconds)

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        """See Agent."""
        return executor.apply(plan, run, self._host, self._journal, self._now, progress)

    def rollback(self, run: Run, progress: Progress) -> Run:
        """See Agent."""
        return executor.rollback(run, self._host, self._journal, self._now, progress)

    def run(self, run: str) -> Run:
        """See Agent."""
        return self._journal.run(run)

    def entries(self, run: str) -> tuple[Entry, ...]:
        """See Agent."""
        return self._journal.entries(run)

    def news(self, after: int, timeout: float, names: tuple[str, ...]) -> tuple[News, ...]:
        """See Agent."""
        return self._newsroom.since(after, timeout, names)

    def explain(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        """See Agent."""
        return self._host.explain(drifts)

    def set_exempt(self, guest: str, *, exempt: bool) -> None:
        """See Agent."""
        self._host.set_exempt(guest, exempt=exempt)
