# ruff: noqa: ARG002
"""The agent of a captured machine (a copy of its proc/ and sys/), which cannot be changed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import NoReturn

from pinner.agent.protocol import Progress
from pinner.model.errors import Invalid, NotFound
from pinner.model.event import HostEvent
from pinner.model.health import AgentHealth
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import Plan
from pinner.model.policy import Drift
from pinner.model.reading import HostReading
from pinner.model.run.agent_audit import ChainHead
from pinner.model.run.journal import NEVER_BEGUN, Entry, Run
from pinner.model.snapshot import Snapshot


class CapturedAgent:
    """Satisfies Agent. Runs, events, history and audit trail raise NotFound, changes Invalid."""

    def __init__(
        self, take_snapshot: Callable[[float], Snapshot], sample: Callable[[Snapshot], HostReading] = HostReading
    ) -> None:
        self._take_snapshot = take_snapshot
        self._sample = sample

    def snapshot(self, sample_seconds: float) -> Snapshot:
        """No process runs, so there is no load."""
        return self._take_snapshot(0.0)

    def topology(self) -> Topology:
        return self._take_snapshot(0.0).topology

    def reading(self, sample_seconds: float) -> HostReading:
        return self._sample(self.snapshot(0.0))

    def apply(self, plan: Plan, run: Run, progress: Progress) -> NoReturn:
        raise Invalid("host", plan.host, "a live host: a captured machine cannot be changed")

    def rollback(self, run: Run, progress: Progress) -> NoReturn:
        if run.undoes_all:
            raise Invalid("host", run.host, "a live host: a captured machine cannot be changed")
        raise NotFound("run", run.undoes)

    def run(self, run: str) -> NoReturn:
        raise NotFound("run", run)

    def close_run(self, run: Run) -> Run:
        return replace(run, state="failed", ended_at=run.started_at, error=NEVER_BEGUN)

    def entries(self, run: str) -> tuple[Entry, ...]:
        return ()

    def host_events(self, after: int, timeout: float, process_names: tuple[str, ...] | None) -> tuple[HostEvent, ...]:
        return ()

    def measures(
        self, begin: datetime, end: datetime, step: int, subject: str = "", series: tuple[str, ...] = ()
    ) -> NoReturn:
        raise NotFound("measures", "of a captured machine")

    def blame(self, guest: str, seconds: float) -> NoReturn:
        raise Invalid("host", guest, "a live host: nothing runs on a captured machine")

    def health(self) -> AgentHealth:
        return AgentHealth((), 0)

    def has_guest(self, guest: str) -> bool:
        return any(running.uuid == guest for running in self.snapshot(0.0).guests)

    def publish_guest_event(self, guest: str, detail: str) -> None:
        pass

    def publish_policy_set(self) -> None:
        pass

    def explain_drifts(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        return drifts

    def set_excluded(self, guest: str, *, excluded: bool) -> NoReturn:
        raise Invalid("guest", guest, "a guest of a live host: a captured machine cannot be changed")

    def audit_head(self, centre: ChainHead | None) -> NoReturn:
        raise NotFound("audit trail", "captured machine")

    def audit_records(self, after: int, limit: int) -> NoReturn:
        raise NotFound("audit trail", "captured machine")
