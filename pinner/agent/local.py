import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NoReturn, Protocol

from pinner.agent import limits
from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.protocol import Progress
from pinner.agent.socket import peers
from pinner.agent.socket.peers import require_caller
from pinner.agent.trail.trail import AgentTrailFile, CallLimit
from pinner.apply import executor
from pinner.apply.ports import Admission, Host, Journal
from pinner.apply.recover import RecoveryPolicy, recover
from pinner.apply.steps.metadata import keeps_pins
from pinner.model.change import AffinityChange, Target, group_of
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import (
    Invalid,
    NoMeasures,
    NotFound,
    NotPermitted,
    NovaConflict,
    Refused,
    RunConflict,
    StalePlan,
    StoreUnavailable,
)
from pinner.model.event import HostEvent
from pinner.model.guest.guest import Guest, Vcpu
from pinner.model.health import AgentHealth, Check
from pinner.model.kinds import ALONE, INSIDE, OF_GUESTS, SETTINGS, TargetKind
from pinner.model.machine.topology import Topology
from pinner.model.outcome.blame import Blame
from pinner.model.outcome.measures import History
from pinner.model.page import batches
from pinner.model.plan.plan import Plan
from pinner.model.policy import Drift
from pinner.model.reading import HostReading
from pinner.model.run.agent_audit import AgentRecord, ChainHead, SignedHead
from pinner.model.run.journal import NEVER_BEGUN, Damaged, Entry, EntryState, Run
from pinner.model.snapshot import Snapshot
from pinner.planning.admission import Past, identified, require_permitted
from pinner.planning.changes import require_free
from pinner.planning.policy.release import past_of
from pinner.planning.settings.inside.misfits import misfits, without_made

LOG = logging.getLogger(__name__)
_EXPLAINED = 512
"""Drifts at once; between two parts the agent looks whether the caller still waits."""


class Machine(Host, Protocol):
    def has_guest(self, guest: str) -> bool: ...

    def topology(self) -> Topology: ...

    def explain_drifts(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]: ...


Histories = Callable[[datetime, datetime, int, str, tuple[str, ...]], tuple[History, ...]]
"""See Agent.measures."""


def no_history(*_: object) -> NoReturn:
    raise NoMeasures


Tracer = Callable[[Guest, tuple[Guest, ...], float], Blame]
"""Finds who delays a guest among the host's guests, in so many seconds."""


def no_trace(guest: Guest, guests: tuple[Guest, ...], seconds: float) -> NoReturn:  # noqa: ARG001
    raise NotPermitted("trace the scheduler", "this agent does not trace")


Inventories = Callable[[Collection[TargetKind], Collection[str]], Snapshot]
"""A snapshot with all that decides whether changes of these kinds, and inside these guests (UUIDs), are admitted."""


class LocalAgent:
    """Satisfies Agent with a host and a journal of this machine."""

    def __init__(
        self,
        take_snapshot: Callable[[float], Snapshot],
        host: Machine,
        journal: Journal,
        now: Callable[[], datetime],
        event_queue: HostEventQueue,
        trail: AgentTrailFile,
        recovery: RecoveryPolicy = "back",
        *,
        name: str,
        boot: str = "",
        checks: Callable[[], tuple[Check, ...]] = tuple,
        sample: Callable[[Snapshot, float], HostReading] = lambda snapshot, _: HostReading(snapshot),
        histories: Histories = no_history,
        trace: Tracer = no_trace,
        take_inventory: Inventories | None = None,
        idle_limit: CallLimit | None = None,
    ) -> None:
        """``take_snapshot`` gets the seconds between two samples; ``recovery``: how an interrupted apply ends;
        ``name``: the host's; ``boot``: the present one, or empty; ``checks``: of other parts."""
        self._take_snapshot = take_snapshot
        self._host = host
        self._journal = journal
        self._now = now
        self._event_queue = event_queue
        self._trail = trail
        self._recovery = recovery
        self._name = name
        self._checks = checks
        self._sample = sample
        self._histories = histories
        self._trace = trace
        self._take_inventory = take_inventory or (lambda *_: take_snapshot(0.0))
        self._boot = boot
        self._idle = idle_limit or CallLimit()
        self._ended_boots = not boot

    def recover(self) -> None:
        if run := recover(self._host, self._journal, self._recovery, self._now, self._boot):
            LOG.warning("run %s was %s (%s)", run.id, run.recovered, run.state)
        if not self._ended_boots:
            keeps = partial(keeps_pins, host=self._host)
            if gone := self._journal.end_earlier_boots(self._boot, self._now(), keeps):
                LOG.info("the host was restarted: %d changes of earlier runs ended with their threads", gone)
            self._ended_boots = True

    def close(self) -> None:
        self._event_queue.close()

    def snapshot(self, sample_seconds: float) -> Snapshot:
        return with_pools(self._take_snapshot(sample_seconds), self._journal)

    def topology(self) -> Topology:
        return self._host.topology()

    def reading(self, sample_seconds: float) -> HostReading:
        return self._sample(self.snapshot(0.0), sample_seconds)

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        self._require_open(run)
        with self._trail.refusals(run, self._has_run):
            limits.require_plan(plan, run, self._name)
            self._idle.require()
            run = self._own(run)
            require_settings(plan, self._take_inventory)
            self.recover()
            with self._counted(run, "done", progress) as watched:
                return executor.apply(plan, run, self._host, self._journal, self._now, watched, self._admit)

    def rollback(self, run: Run, progress: Progress) -> Run:
        self._require_open(run)
        with self._trail.refusals(run, self._has_run):
            limits.require_rollback(run, self._name)
            run = self._own(run)
            self.recover()
            undone = self._undone(run)
            self._idle.require(undone)
            with self._counted(run, "undone", progress, undone) as watched:
                return executor.rollback(run, self._host, self._journal, self._now, watched)

    @contextmanager
    def _counted(self, run: Run, state: EntryState, progress: Progress, subject: str = "") -> Iterator[Progress]:
        """Count a begun run as idle if it is refused then, or no entry gets ``state``: a caller can repeat it."""
        states: set[EntryState] = set()

        def watched(entry: Entry, total: int) -> None:
            states.add(entry.state)
            progress(entry, total)

        try:
            yield watched
        finally:
            with suppress(StoreUnavailable):
                if state not in states and self._has_run(run.id):
                    self._idle.add(subject)

    def _undone(self, run: Run) -> str:
        """Empty where nothing of it is in force. Idle calls must keep nobody from a rollback with something to undo."""
        for record in self._journal.in_force(run.host):
            if run.undoes in ("", record.run if isinstance(record, Damaged) else record.entry.run):
                return run.undoes or "all runs"
        return ""

    def _admit(self, plan: Plan, run: Run) -> Admission:
        # A host may have thousands of interrupts and rings, guests with much memory, and guests whose agents are slow:
        # these are read only for a run that changes some.
        kinds = {change.target.kind for change in plan.changes}
        inside = {group_of(change.target).owner for change in plan.changes if change.target.kind in INSIDE}
        taken = self._take_inventory(kinds | {"memory"} if run.migrate_memory else kinds, inside)
        return admit(plan, run, with_pools(taken, self._journal), self._journal)

    def _own(self, run: Run) -> Run:
        with suppress(NotFound):
            raise RunConflict(run.id, self._journal.run(run.id).state, "give a new run an id that no run has")
        return replace(self._known(run), state="running", started_at=self._now(), ended_at=None, error="")

    def _known(self, run: Run) -> Run:
        return replace(
            run,
            actor=limits.cut(run.actor),
            origin=limits.cut(run.origin),
            recovered="",
            boot=self._boot,
            peer=run.peer or peers.own().label,
        )

    def _require_open(self, run: Run) -> None:
        """Raises RunConflict where the run was closed before it began: no attack, so the trail has no refusal."""
        with suppress(NotFound):
            if (journaled := self._journal.run(run.id)).error == NEVER_BEGUN:
                LOG.warning("run %s begins too late, and is refused: it was closed", run.id)
                raise RunConflict(run.id, journaled.state, "it was closed before it began; apply the plan again")

    def run(self, run: str) -> Run:
        journaled = self._journal.run(run)
        if journaled.state == "running":
            self.recover()
            journaled = self._journal.run(run)
        return journaled

    def close_run(self, run: Run) -> Run:
        limits.require_run(run, self._name)
        if not self._has_run(run.id):
            self._idle.require()
            self._idle.add()
            now = self._now()
            closed = replace(self._known(run), state="failed", started_at=now, ended_at=now, error=NEVER_BEGUN)
            with suppress(RunConflict):  # the run has begun just now
                self._journal.close_unbegun(closed)
        return self.run(run.id)

    def entries(self, run: str) -> tuple[Entry, ...]:
        entries, damaged = self._journal.readable_entries(run)
        for record in damaged:
            LOG.error("%s is damaged: %s", record, record.why)
        return entries

    def host_events(self, after: int, timeout: float, process_names: tuple[str, ...] | None) -> tuple[HostEvent, ...]:
        return self._event_queue.since(after, timeout, process_names)

    def measures(
        self, begin: datetime, end: datetime, step: int, subject: str = "", series: tuple[str, ...] = ()
    ) -> tuple[History, ...]:
        return self._histories(begin, end, step, subject, series)

    def blame(self, guest: str, seconds: float) -> Blame:
        guests = self.snapshot(0.0).guests
        for running in guests:
            if running.uuid == guest:
                return self._trace(running, guests, seconds)
        raise NotFound("guest", guest, tuple(running.name for running in guests))

    def health(self) -> AgentHealth:
        try:
            self._has_run("")
            self._journal.require_room()
            journal = Check("journal", ok=True)
        except StoreUnavailable as error:
            journal = Check("journal", ok=False, why=str(error))
        return AgentHealth((journal, *self._checks()), threading.active_count())

    def has_guest(self, guest: str) -> bool:
        return self._host.has_guest(guest)

    def publish_guest_event(self, guest: str, detail: str) -> None:
        self._event_queue.publish("guest-event", guest, detail)

    def publish_policy_set(self) -> None:
        self._event_queue.publish("policy-set", "")

    def explain_drifts(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        explained: list[Drift] = []
        for part in batches(drifts, _EXPLAINED):
            require_caller()
            explained += self._host.explain_drifts(tuple(part))
        return tuple(explained)

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        with self._trail.marking(guest, excluded=excluded):
            self._host.guests.set_excluded(guest, excluded=excluded)

    def audit_head(self, centre: ChainHead | None) -> SignedHead:
        return self._trail.head(centre)

    def audit_records(self, after: int, limit: int) -> tuple[AgentRecord, ...]:
        return self._trail.records(after, limit)

    def _has_run(self, run: str) -> bool:
        try:
            self._journal.run(run)
        except NotFound:
            return False
        return True


def with_pools(snapshot: Snapshot, journal: Journal) -> Snapshot:
    """Sets ``Guest.pooled``: where pinner placed several guests on one CPU, their vCPUs look as if pinned alone. The
    journal is read only for guests with several threads on one CPU."""
    return replace(snapshot, guests=tuple(_with_pool(guest, journal) for guest in snapshot.guests))


def _with_pool(guest: Guest, journal: Journal) -> Guest:
    crowded = [vcpu for vcpu in guest.vcpus if _shares_its_cpu(vcpu, guest)]
    if not crowded:
        return guest
    # Without the journal the guest's CPUs stay its own, as those of a guest that pinner never placed.
    with suppress(StoreUnavailable):
        changes = [entry.change for entry in journal.changes_of(guest.uuid) if entry.change.target.kind == "vcpu"]
        placed = {change.target.part: change for change in changes if isinstance(change, AffinityChange)}
        return replace(guest, pooled=union(_given(vcpu, placed.get(vcpu.id)) for vcpu in crowded))
    return guest


def _shares_its_cpu(vcpu: Vcpu, guest: Guest) -> bool:
    if vcpu.thread is None or len(vcpu.thread.affinity) != 1:
        return False
    others = (*guest.emulator.threads, *(other.thread for other in guest.vcpus if other.thread and other is not vcpu))
    return any(thread.affinity == vcpu.thread.affinity for thread in others)


def _given(vcpu: Vcpu, last: AffinityChange | None) -> CpuSet:
    thread = vcpu.thread
    if thread is None or last is None or last.after != thread.affinity:
        return CpuSet()
    return thread.affinity if any(mask.key == thread.key for mask in last.before) else CpuSet()


def admit(plan: Plan, run: Run, snapshot: Snapshot, journal: Journal) -> Admission:
    """The planner's rules, with the agent's own snapshot and journal. Raises Refused, StalePlan."""
    known, ended = identified(plan, snapshot)
    known = without_made(known, snapshot)
    if not plan.is_release:
        require_free(known, snapshot)

    def require(past: Past) -> None:
        require_permitted(known, snapshot, past, migrate_memory=run.migrate_memory)

    def require_permission() -> None:
        if not plan.is_release:
            # The journal is read only where it may matter, because it can be large.
            with suppress(Refused, NovaConflict):
                return require(Past())
        return require(_past(known, journal))

    owners = {change.target.owner for change in known.changes}
    unread = {guest.uuid: guest.unread for guest in snapshot.guests if guest.unread and guest.uuid in owners}
    unfit = misfits(known, snapshot)
    return Admission(known, ended - unfit.keys(), unread, unfit, require_permission)


def require_settings(plan: Plan, inventory: Inventories) -> None:
    """Raises Invalid for a plan none of whose settings exists now: it begins no run. Those inside a guest count."""
    kinds = frozenset(change.target.kind for change in plan.changes)
    if not kinds & set(SETTINGS) or not kinds <= set(ALONE) - set(INSIDE):
        return
    ended: frozenset[Target] = frozenset()
    with suppress(Refused, StalePlan):  # the run says why
        _, ended = identified(plan, inventory(kinds, ()))
    if len(ended) == len(plan.changes):
        absent = [str(target) for change in plan.changes if (target := change.target).kind in SETTINGS]
        raise Invalid("plan changes", absent, "settings that this host has now; make a new plan")


def _past(plan: Plan, journal: Journal) -> Past:
    guests = {change.target.owner for change in plan.changes if change.target.kind in OF_GUESTS}
    released = sorted(guests) if plan.is_release else []
    return Past(
        cpus=journal.allocated(),
        names=journal.moved_processes(),
        placed=past_of(entry for guest in released for entry in journal.changes_of(guest)),
    )
