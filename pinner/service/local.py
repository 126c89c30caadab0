"""The use cases, answered in this process: agents do, the store keeps, the planner plans."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

from pinner.agent.protocol import Agent
from pinner.model.audit import AuditRecord, Caller, Verification
from pinner.model.drift import DriftReport
from pinner.model.errors import Blocked, HostUnreachable, Invalid, NotFound, RunConflict, StoreUnavailable
from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.model.journal import Entry, Run, RunKind, RunProgress
from pinner.model.page import Page
from pinner.model.plan import Plan, PlanSummary
from pinner.model.policy import Policy
from pinner.model.request import Request
from pinner.model.snapshot import MAX_SAMPLE_SECONDS, Snapshot
from pinner.planning import planner
from pinner.planning.strategy import installed
from pinner.service.guest_events import GuestEventHandler
from pinner.service.protocol import GuestExclusion, StrategyInfo
from pinner.service.reconciler import Reconciler
from pinner.service.run_execution import Call, RunExecution
from pinner.service.run_follower import RunFollower
from pinner.service.run_recorder import RunRecorder
from pinner.store.audit import audit_event
from pinner.store.repositories import Store

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.2
"""Between two looks at a run that another process carries out."""

SETTLING = timedelta(seconds=5)
"""How long the process that carries a run out may take to store its begin and its end."""

MAX_RUNS = 64
"""Runs carried out at once. One host has one at a time, but a refusal needs a thread too."""


class LocalService:
    """Satisfies UseCases. ``close`` waits for the runs under way: none is left half done."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        store: Store,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        sample_seconds: float,
        migration: timedelta = timedelta(hours=1),
    ) -> None:
        """Agents by host; ``new_id`` never repeats one; ``sample_seconds`` where a caller names none; see Hearing."""
        self._agents = agents
        self._snapshots = store.snapshots
        self._plans = store.plans
        self._runs = store.runs
        self._audit = store.audit
        self._now = now
        self._new_id = new_id
        self._sample_seconds = sample_seconds
        self.reconciler = Reconciler(agents, store, now, new_id, sample_seconds, self._carry_out)
        """What a keeper works with."""
        self._guest_events = GuestEventHandler(agents, store, now, migration, self.reconciler)
        self._workers = ThreadPoolExecutor(MAX_RUNS, thread_name_prefix="run")
        self._mine: dict[str, RunRecorder] = {}
        """Of the runs that this process carries out."""
        self._progressed = threading.Condition()

    def catch_up(self) -> None:
        """Store what became of the runs whose process did not see them end: to be asked for once, at the start."""
        for run in self._runs.running():
            self._up_to_date(run)

    def close(self) -> None:
        """Take no more runs, and wait for those under way."""
        self._workers.shutdown(wait=True)

    def hosts(self) -> tuple[str, ...]:
        """See UseCases."""
        return tuple(sorted(self._agents))

    def strategies(self) -> tuple[StrategyInfo, ...]:
        """See UseCases."""
        return tuple(StrategyInfo(each.name, each.summary, each.parameters) for each in installed().values())

    def observe(self, host: str, sample_seconds: float) -> Snapshot:
        """See UseCases."""
        if not 0 <= sample_seconds <= MAX_SAMPLE_SECONDS:
            raise Invalid("sample_seconds", sample_seconds, f"a number of seconds from 0 to {MAX_SAMPLE_SECONDS:g}")
        self._agent(host)
        return self.reconciler.snapshot_of(host, sample_seconds)

    def take_snapshot(self, host: str, sample_seconds: float | None, caller: Caller) -> tuple[str, Snapshot]:
        """See UseCases."""
        taken = self.observe(host, self._sample_seconds if sample_seconds is None else sample_seconds)
        key = self._snapshots.add(taken)
        self._record(caller, "snapshot.take", host, key, "done")
        return key, taken

    def snapshot(self, snapshot: str) -> Snapshot:
        """See UseCases."""
        return self._snapshots.get(snapshot)

    def plan(
        self, host: str, request: Request, snapshot: str | None, sample_seconds: float | None, caller: Caller
    ) -> Plan:
        """See UseCases."""
        self._agent(host)
        if request.strategy not in installed():
            # Before the host is measured for seconds.
            raise NotFound("strategy", request.strategy, tuple(installed()))
        if snapshot is None:
            key, basis = self.take_snapshot(host, sample_seconds, caller)
        else:
            key, basis = snapshot, self.snapshot(snapshot)
            if basis.host != host:
                raise Invalid("snapshot", snapshot, f"a snapshot of host {host}; this one is of {basis.host}")
        made = planner.plan(basis, key, request)
        self._plans.add(made, self._now())
        self._record(caller, "plan.create", host, made.id, f"{len(made.changes)} changes")
        return made

    def plan_by_id(self, plan: str) -> Plan:
        """See UseCases."""
        return self._plans.get(plan)

    def plans(self, host: str | None, limit: int, marker: str) -> Page[PlanSummary]:
        """See UseCases."""
        return self._plans.list(self._known(host), limit, marker)

    def apply(self, plan: str, persist: bool, caller: Caller, *, migrate_memory: bool = False) -> Run:
        """See UseCases."""
        wanted = self.plan_by_id(plan)
        agent = self._agent(wanted.host)
        if wanted.blocked:
            self._record(caller, "run.apply", wanted.host, plan, f"refused: {Blocked.code}")
            raise Blocked(plan, wanted.blocked)
        self.reconciler.permit(wanted.host, f"plan {plan}", wanted.request)
        run = replace(self._new_run("apply", wanted.host, plan, caller), persist=persist, migrate_memory=migrate_memory)
        return self._start(run, caller, lambda progress: agent.apply(wanted, run, progress))

    def rollback(self, run: str, caller: Caller) -> Run:
        """See UseCases."""
        undone = self.run(run)
        agent = self._agent(undone.host)
        self.reconciler.permit(undone.host, f"the rollback of run {run}", None)
        if undone.kind == "apply" and undone.state == "failed" and not self._runs.entries(run):
            # Its agent does not know it.
            raise RunConflict(run, "failed", "it changed nothing, so there is nothing to take back")
        made = replace(self._new_run("rollback", undone.host, undone.plan, caller), undoes=run)
        return self._start(made, caller, lambda progress: agent.rollback(made, progress))

    def run(self, run: str) -> Run:
        """See UseCases."""
        return self._up_to_date(self._runs.get(run))

    def runs(self, host: str | None, limit: int, marker: str) -> Page[Run]:
        """See UseCases."""
        page = self._runs.list(self._known(host), limit, marker)
        return Page(tuple(self._up_to_date(run) for run in page.items), page.next)

    def entries(self, run: str) -> tuple[Entry, ...]:
        """See UseCases."""
        found = self.run(run)
        return self._runs.entries(found.undoes or found.id)

    def follow(self, run: str) -> Iterator[RunProgress]:
        """See UseCases."""
        self.run(run)
        return self._follow(run)

    def policy(self, host: str) -> Policy:
        """See UseCases."""
        self._agent(host)
        return self.reconciler.policy(host)

    def set_policy(self, host: str, policy: Policy, caller: Caller) -> Policy:
        """See UseCases."""
        self._agent(host)
        return self.reconciler.put(host, policy, caller)

    def drift(self, host: str) -> DriftReport:
        """See UseCases."""
        self._agent(host)
        return self.reconciler.drift(host)

    def set_excluded(self, host: str, guest: str, excluded: bool, caller: Caller) -> GuestExclusion:
        """See UseCases."""
        guests = self.observe(host, 0.0).guests
        found = next((each for each in guests if guest in (each.uuid, each.name)), None)
        if found is None:
            raise NotFound("guest", guest, tuple(sorted(each.name for each in guests)))
        self._agent(host).set_excluded(found.uuid, excluded=excluded)
        self._record(
            caller, "guest.exclude", host, f"{found.name} ({found.uuid})", "left alone" if excluded else "placed"
        )
        return GuestExclusion(found.uuid, found.name, excluded)

    def guest_event(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        """See UseCases."""
        return self._guest_events.handle(host, event, caller)

    def audit(
        self, host: str | None, actor: str | None, since: datetime | None, limit: int, marker: str
    ) -> Page[AuditRecord]:
        """See UseCases."""
        return self._audit.list(host, actor, since, limit, marker)

    def verify_audit(self) -> Verification:
        """See UseCases."""
        return self._audit.verify()

    def _follow(self, run: str) -> Iterator[RunProgress]:
        follower = RunFollower()
        while True:
            # The run first: entries that are read after its end are all there are.
            now = self.run(run)
            yield from follower.progress_of(now, self.entries(run))
            if now.state != "running":
                return
            with self._progressed:
                self._progressed.wait(POLL_SECONDS)

    def _agent(self, host: str) -> Agent:
        if host not in self._agents:
            raise NotFound("host", host, self.hosts())
        return self._agents[host]

    def _known(self, host: str | None) -> str | None:
        if host is not None:
            self._agent(host)
        return host

    def _new_run(self, kind: RunKind, host: str, plan: str, caller: Caller) -> Run:
        return Run(
            id=f"run-{self._new_id()}",
            kind=kind,
            host=host,
            plan=plan,
            actor=caller.actor,
            origin=caller.origin,
            state="running",
            started_at=self._now(),
        )

    def _start(self, run: Run, caller: Caller, call: Call) -> Run:
        """Carry the run out in a thread of its own; back when the agent has begun. Raises what it refuses with."""
        self._begin(run, caller, call)
        return self._runs.get(run.id)

    def _carry_out(self, plan: Plan, caller: Caller, kind: RunKind) -> Run:
        """Apply a stored plan to its end. Raises what it is refused with."""
        run = self._new_run(kind, plan.host, plan.id, caller)
        self._begin(run, caller, lambda progress: self._agent(plan.host).apply(plan, run, progress)).result()
        return self.run(run.id)

    def _begin(self, run: Run, caller: Caller, call: Call) -> "Future[None]":
        agent = self._agent(run.host)
        recorder = RunRecorder(run, caller.request_id, self._runs, self._now)
        recorder.open()
        execution = RunExecution(run, recorder, lambda: agent.entries(run.undoes or run.id), self._now, self._tell)
        self._mine[run.id] = recorder
        done = self._workers.submit(execution.carry_out, call)
        done.add_done_callback(lambda _: self._mine.pop(run.id))
        execution.wait_begun()
        return done

    def _tell(self) -> None:
        with self._progressed:
            self._progressed.notify_all()

    def _up_to_date(self, run: Run) -> Run:
        """The run with the agent's word in place of ours where the process that carried it out has died."""
        if run.state != "running" or run.host not in self._agents:
            return run
        if recorder := self._mine.get(run.id):
            # RunProgress is held back for a moment to be written together, and the next change may be long in coming.
            recorder.flush()
            return run
        settled_before = self._now() - SETTLING
        agent = self._agents[run.host]
        try:
            word = agent.run(run.id)
        except NotFound:
            word = replace(run, state="failed", ended_at=run.started_at, error="interrupted before it changed anything")
        except (HostUnreachable, StoreUnavailable) as error:
            LOG.warning("how run %s stands its agent cannot tell now: %s", run.id, error)
            return run
        if word.ended_at is None or (word.ended_at > settled_before and not word.recovered):
            return run
        recorder = RunRecorder(run, "", self._runs, self._now)
        recorder.close(word, agent.entries(run.undoes or run.id))
        return self._runs.get(run.id)

    def _record(self, caller: Caller, action: str, host: str, subject: str, result: str) -> None:
        self._audit.append(audit_event(caller, self._now(), action, host, subject, result))
