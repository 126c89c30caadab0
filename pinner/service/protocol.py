"""What can be asked of pinner: one set of use cases, answered on this host (service) or by a server (remote).

Every method raises the errors of pinner.model.errors and nothing else on purpose.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from pinner.model.audit import AuditRecord, Caller, Verification
from pinner.model.drift import DriftReport
from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.model.journal import Entry, Run, RunProgress
from pinner.model.page import Page
from pinner.model.plan import Plan, PlanSummary
from pinner.model.policy import Policy
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class StrategyInfo:
    """A strategy for people: its name, one sentence, and the request fields that it reads."""

    name: str
    summary: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GuestExclusion:
    """Whether a guest's metadata says that its CPUs are to be left alone."""

    uuid: str
    name: str
    excluded: bool


class Service(Protocol):
    """pinner."""

    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts that can be planned for."""

    def strategies(self) -> tuple[StrategyInfo, ...]:
        """The installed strategies."""

    def observe(self, host: str, sample_seconds: float) -> Snapshot:
        """The host as it is, not stored. 0 seconds: without loads, at once."""

    def take_snapshot(self, host: str, sample_seconds: float | None, caller: Caller) -> tuple[str, Snapshot]:
        """Take and store a snapshot; its id (content hash) and itself. None: the configured sample."""

    def snapshot(self, snapshot: str) -> Snapshot:
        """A stored snapshot."""

    def plan(
        self, host: str, request: Request, snapshot: str | None, sample_seconds: float | None, caller: Caller
    ) -> Plan:
        """Plan from a stored snapshot, or from one taken now; the plan is stored."""

    def plan_by_id(self, plan: str) -> Plan:
        """A stored plan."""

    def plans(self, host: str | None, limit: int, marker: str) -> Page[PlanSummary]:
        """Stored plans."""

    def apply(self, plan: str, persist: bool, caller: Caller, *, migrate_memory: bool = False) -> Run:
        """Start to apply a plan; the run that comes back goes on by itself. Refusals (stale, blocked, busy) raise.

        ``persist`` writes the guests' definitions too; ``migrate_memory`` moves each guest's memory to the node that
        the plan gives to its vCPUs.
        """

    def rollback(self, run: str, caller: Caller) -> Run:
        """Start to take a run back; a run of its own."""

    def run(self, run: str) -> Run:
        """A run as it stands."""

    def runs(self, host: str | None, limit: int, marker: str) -> Page[Run]:
        """All runs."""

    def entries(self, run: str) -> tuple[Entry, ...]:
        """A run's changes with their states; of a rollback, the entries of the run it takes back."""

    def follow(self, run: str) -> Iterator[RunProgress]:
        """The run's changes as they end, those that have ended first; stops when the run has ended."""

    def policy(self, host: str) -> Policy:
        """The host's policy. Raises NotFound where it has none."""

    def set_policy(self, host: str, policy: Policy, caller: Caller) -> Policy:
        """Give the host a policy in place of the one it has. A server that serves the host heeds it within seconds."""

    def drift(self, host: str) -> DriftReport:
        """What stands against what the kernel says now; nothing is changed. Where the policy is new and nothing stands
        yet, CPU use is measured first."""

    def set_excluded(self, host: str, guest: str, excluded: bool, caller: Caller) -> GuestExclusion:
        """Mark a guest (name or UUID), in its metadata, as one whose CPUs are left alone, or take the mark away."""

    def guest_event(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        """Somebody tells that something happened to a guest of a host (None: of the only one). Whoever keeps the host
        looks at once. An event is a hint: told twice, late or of a guest that is gone it does no harm."""

    def audit(
        self, host: str | None, actor: str | None, since: datetime | None, limit: int, marker: str
    ) -> Page[AuditRecord]:
        """The audit trail."""

    def verify_audit(self) -> Verification:
        """Check the hash chain from the first record to the last."""
