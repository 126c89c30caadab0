"""An agent whose host is a dictionary.

Tests of the service use it, because they need a host that refuses, fails or waits at chosen moments; a real host does
not. They check that refusals are raised at once, that every change is copied, and that a run can be followed to its
end. The journal and the store are real.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from support.fakes.in_memory_host import InMemoryHost
from support.hosts import masked

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import Histories
from pinner.agent.protocol import Progress
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import AgentTrailFile
from pinner.apply.undo.history import whole_undo
from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import NotFound, PinnerError, RunConflict
from pinner.model.kinds import Governor, Number, State
from pinner.model.machine.health import AgentHealth, Check
from pinner.model.machine.topology import Topology
from pinner.model.outcome.measures import HOST, HOST_SERIES, History
from pinner.model.plan.plan import Plan
from pinner.model.policy.drift import Cause, Drift
from pinner.model.policy.event import HostEvent
from pinner.model.processes.blame import Blame
from pinner.model.reading import HostReading
from pinner.model.run.agent_audit import AgentRecord, ChainHead, SignedHead
from pinner.model.run.journal import NEVER_BEGUN, Entry, Run
from pinner.model.snapshot import Snapshot
from pinner.store.journal.journal import StoredJournal


class InMemoryAgent:
    """Makes one change after the other, and acquires ``gate`` before each of them."""

    def __init__(self, folder: Path, snapshot: Snapshot, now: Callable[[], datetime]) -> None:
        self.journal = StoredJournal(folder)
        key = SigningKey(folder / "signing.key")
        self.trail = AgentTrailFile(snapshot.host, self.journal.chain, key, now)
        self.taken = snapshot
        self.now = now
        self.masks: dict[int, CpuSet] = {}
        self.irqs: dict[int, CpuSet] = {}
        """The affinity of interrupts that a run or another program moved, by number."""
        self.sysctls: dict[str, int] = {}
        """The sysctls that a run or another program set."""
        self.governors: dict[int, Governor] = {}
        """The governors that a run or another program set, by the number of the policy."""
        self.weights: dict[str, int] = {}
        """The CPU weights that a run or another program set."""
        self.refusal: PinnerError | None = None
        self.mark_failure: Exception | None = None
        """Why no guest can be marked."""
        self.failing: dict[str, str] = {}
        """By the owner of a target: why its changes fail. The run places the others."""
        self.break_after: int | None = None
        self.broken: Exception = PinnerError("the agent broke")
        self.ends_broken_runs = True
        """Whether the journal has the end of a run that broke: yes after an error, no where the agent was killed."""
        self.gate = threading.Semaphore(1000)
        self.event_queue = HostEventQueue(now)
        self.samples: list[float] = []
        self.needs_sample = False
        """Whether a snapshot without a sample has no loads, as on a real host."""
        self.cause: Cause = "unknown"
        self.histories: Histories | None = None
        self.libvirt_fails = ""
        self.excluded: dict[str, bool] = {}

    def snapshot(self, sample_seconds: float) -> Snapshot:
        self.samples.append(sample_seconds)
        now = masked(replace(self.taken, sample_seconds=sample_seconds), self.masks)
        if now.irqs is not None:
            moved = (replace(irq, cpus=self.irqs.get(irq.number, irq.cpus)) for irq in now.irqs.irqs)
            now = replace(now, irqs=replace(now.irqs, irqs=tuple(moved)))
        if now.sysctls is not None:
            now = replace(now, sysctls={**now.sysctls, **self.sysctls})
        if now.cpu_weights is not None:
            now = replace(now, cpu_weights={**now.cpu_weights, **self.weights})
        if now.governors is not None:
            domains = (replace(each, governor=self.governors.get(each.number, each.governor)) for each in now.governors)
            now = replace(now, governors=tuple(domains))
        if sample_seconds or not self.needs_sample:
            return now
        return replace(now, processes=tuple(replace(each, load=0.0) for each in now.processes))

    def reading(self, sample_seconds: float) -> HostReading:
        """A snapshot without counters."""
        return HostReading(self.snapshot(0.0))

    def measures(
        self, begin: datetime, end: datetime, step: int, subject: str = "", series: tuple[str, ...] = ()
    ) -> tuple[History, ...]:
        """Those of ``histories``; by default the host, whose values nobody knows."""
        if self.histories is not None:
            return self.histories(begin, end, step, subject, series)
        return (History(HOST, "", begin, step, {series.name: (None,) for series in HOST_SERIES}),)

    def blame(self, guest: str, seconds: float) -> Blame:
        """Nobody delays the guest."""
        return Blame(guest, seconds, (), (), 0)

    def health(self) -> AgentHealth:
        return AgentHealth((Check("libvirt", not self.libvirt_fails, self.libvirt_fails),), 7)

    def topology(self) -> Topology:
        return self.taken.topology

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        if self.refusal is not None:
            raise self.refusal
        self._require_new(run)
        intents = tuple(Entry(run.id, n, change, "intent", self.now()) for n, change in enumerate(plan.changes, 1))
        self.journal.begin(run)
        self.journal.intend(*intents)
        for entry in intents[:1]:
            progress(entry, len(intents))
        for entry in intents:
            self._wait_for_gate(entry)
            if why := self.failing.get(entry.change.target.owner):
                self._note(replace(entry, state="failed", error=why, at=self.now()), len(intents), progress)
                continue
            if isinstance(entry.change, StateChange):
                self._set_state(entry.change.target, entry.change.after)
            else:
                self.masks |= {mask.tid: entry.change.after for mask in entry.change.before}
            self._note(replace(entry, state="done", at=self.now()), len(intents), progress)
        failed = {entry.change.target.owner for entry in intents} & self.failing.keys()
        if not failed:
            return self._end(run, "applied")
        placed = any(entry.change.target.owner not in failed for entry in intents)
        error = "; ".join(self.failing[owner] for owner in sorted(failed))
        return self._end(replace(run, error=error), "applied_partly" if placed else "undone")

    def rollback(self, run: Run, progress: Progress) -> Run:
        if run.undoes_all:
            return self._rollback_all(run, progress)
        if self.run(run.undoes).state not in ("applied", "applied_partly", "failed"):
            raise RunConflict(run.undoes, self.run(run.undoes).state, "only an applied run can be rolled back")
        self._require_new(run)
        entries = tuple(each for each in self.entries(run.undoes) if each.state == "done")
        self.journal.begin(run)
        return self._undo(run, entries, progress)

    def _rollback_all(self, run: Run, progress: Progress) -> Run:
        self.journal.begin(run)
        entries = whole_undo(run, self.journal.in_force(run.host), self.now(), InMemoryHost()).entries
        self.journal.intend(*entries)
        return self._undo(run, entries, progress)

    def _undo(self, run: Run, entries: tuple[Entry, ...], progress: Progress) -> Run:
        for entry in entries[:1]:
            progress(entry, len(entries))
        for entry in reversed(entries):
            self._wait_for_gate(entry)
            if isinstance(entry.change, StateChange):
                self._set_state(entry.change.target, entry.change.before)
            else:
                self.masks |= {mask.tid: mask.cpus for mask in entry.change.before}
            self._note(replace(entry, state="undone", at=self.now()), len(entries), progress)
        return self._end(run, "rolled_back")

    def _set_state(self, target: Target, state: State) -> None:
        if isinstance(state, Number):
            (self.weights if target.kind == "weight" else self.sysctls)[target.owner] = state.value
        elif isinstance(state, Governor):
            self.governors[target.part] = state
        else:
            self.irqs[target.part] = state

    def run(self, run: str) -> Run:
        return self.journal.run(run)

    def close_run(self, run: Run) -> Run:
        with suppress(RunConflict):
            self.journal.close_unbegun(replace(run, state="failed", ended_at=self.now(), error=NEVER_BEGUN))
        return self.run(run.id)

    def _require_new(self, run: Run) -> None:
        with suppress(NotFound):
            raise RunConflict(run.id, self.run(run.id).state, "give a new run an id that no run has")

    def entries(self, run: str) -> tuple[Entry, ...]:
        return self.journal.entries(run)

    def host_events(self, after: int, timeout: float, process_names: tuple[str, ...] | None) -> tuple[HostEvent, ...]:
        return self.event_queue.since(after, timeout, process_names)

    def has_guest(self, guest: str) -> bool:
        return any(each.uuid == guest for each in self.taken.guests)

    def publish_guest_event(self, guest: str, detail: str) -> None:
        self.event_queue.publish("guest-event", guest, detail)

    def publish_policy_set(self) -> None:
        self.event_queue.publish("policy-set", "")

    def explain_drifts(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        return tuple(replace(drift, cause=self.cause) if drift.cause == "unknown" else drift for drift in drifts)

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        with self.trail.marking(guest, excluded=excluded):
            if self.mark_failure is not None:
                raise self.mark_failure
            self.excluded[guest] = excluded

    def audit_head(self, centre: ChainHead | None) -> SignedHead:
        return self.trail.head(centre)

    def audit_records(self, after: int, limit: int) -> tuple[AgentRecord, ...]:
        return self.trail.records(after, limit)

    def _wait_for_gate(self, entry: Entry) -> None:
        if entry.seq == self.break_after:
            if self.ends_broken_runs:
                run = replace(self.run(entry.run), state="failed", ended_at=self.now(), error=str(self.broken))
                self.journal.end(run)
            raise self.broken
        assert self.gate.acquire(timeout=10)

    def _note(self, entry: Entry, total: int, progress: Progress) -> None:
        self.journal.note(entry)
        progress(entry, total)

    def _end(self, run: Run, state: str) -> Run:
        ended = replace(run, state=state, ended_at=self.now())  # type: ignore[arg-type]
        self.journal.end(ended)
        return ended
