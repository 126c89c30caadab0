"""What can be asked of pinner: one set of use cases, answered on this host (service) or by a server (remote).

Every method raises the errors of pinner.model.errors and nothing else on purpose.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from pinner.model.audit import AuditRecord
from pinner.model.drift import DriftReport
from pinner.model.event import GuestEvent
from pinner.model.journal import Entry, Run
from pinner.model.plan import Plan
from pinner.model.policy import Policy
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot

T = TypeVar("T")

DEFAULT_LIMIT = 50
MAX_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, for the audit trail."""

    actor: str
    origin: str
    """The peer's address, or ``cli`` and the terminal."""
    request_id: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list, newest first; ``next`` is the marker of the page after it, empty on the last."""

    items: tuple[T, ...]
    next: str


@dataclass(frozen=True, slots=True)
class StrategyInfo:
    """A strategy for people: its name, one sentence, and the request fields that it reads."""

    name: str
    summary: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A plan in a list."""

    id: str
    host: str
    strategy: str
    created_at: datetime
    changes: int
    unplaced: int
    blocked: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: ``done`` of ``total`` entries have ended, ``entry`` is the latest (None in the last word,
    which tells only that the run ended)."""

    run: Run
    done: int
    total: int
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Exemption:
    """Whether a guest's metadata says that its CPUs are to be left alone."""

    uuid: str
    name: str
    exempt: bool


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of an event."""

    host: str
    guest: str
    known: bool
    """Whether the guest is one of the host's; the event of another has no effect."""
    run: str
    """Of ``leaving``: the run that gave the guest back the CPUs that it had; empty where pinner had not placed it."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether the audit trail is whole. ``broken`` is the first record that is not, 0 if none; ``head`` the last hash,
    to be kept elsewhere: a trail whose tail was cut off shows only against it."""

    ok: bool
    records: int
    broken: int
    why: str
    head: str


class UseCases(Protocol):
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

    def follow(self, run: str) -> Iterator[Progress]:
        """The run's changes as they end, those that have ended first; stops when the run has ended."""

    def policy(self, host: str) -> Policy:
        """The host's policy. Raises NotFound where it has none."""

    def set_policy(self, host: str, policy: Policy, caller: Caller) -> Policy:
        """Give the host a policy in place of the one it has. A server that serves the host heeds it within seconds."""

    def drift(self, host: str) -> DriftReport:
        """What stands against what the kernel says now; nothing is changed. Where the policy is new and nothing stands
        yet, CPU use is measured first."""

    def set_exempt(self, host: str, guest: str, exempt: bool, caller: Caller) -> Exemption:
        """Mark a guest (name or UUID), in its metadata, as one whose CPUs are left alone, or take the mark away."""

    def guest_event(self, host: str | None, event: GuestEvent, caller: Caller) -> Heard:
        """Somebody tells that something happened to a guest of a host (None: of the only one). Whoever keeps the host
        looks at once. An event is a hint: told twice, late or of a guest that is gone it does no harm."""

    def audit(
        self, host: str | None, actor: str | None, since: datetime | None, limit: int, marker: str
    ) -> Page[AuditRecord]:
        """The audit trail."""

    def verify_audit(self) -> Verification:
        """Check the hash chain from the first record to the last."""
