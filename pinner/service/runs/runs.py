"""RunManager starts, follows and lists runs."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial

from pinner.agent.protocol import Agent
from pinner.model.errors import (
    NOTHING_CHANGED,
    Blocked,
    HostBusy,
    HostUnreachable,
    PinnerError,
    RunConflict,
    StoreUnavailable,
    Unanswered,
    WorsePlan,
)
from pinner.model.page import Page, PageRequest
from pinner.model.plan.plan import Plan
from pinner.model.policy import Expected, Policy
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.model.run.journal import (
    DEFAULT_WATCH_SECONDS,
    ApplyOptions,
    Entry,
    Run,
    RunKind,
    RunProgress,
    RunState,
    is_final,
)
from pinner.service.hosts.hosts import Hosts
from pinner.service.policy.policies import HostPolicies, revision
from pinner.service.runs.audit_heads import AuditHeads
from pinner.service.runs.run_follower import RunFollower
from pinner.service.runs.run_recorder import RunCopier, RunRecorder
from pinner.store.repositories import Store

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.2
"""The time between two readings of another process's run."""

END_SECONDS = 5.0
"""The longest wait for the stored end of an earlier run: a database or an agent may be slow."""

MAX_RUNS = 64
"""A host has one run at a time, but a refusal needs a thread, too."""


class RunManager:
    """Several threads may use it."""

    def __init__(
        self,
        hosts: Hosts,
        policies: HostPolicies,
        heads: AuditHeads,
        store: Store,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        changed: Callable[[str, Iterable[Entry]], None] = lambda *_: None,
    ) -> None:
        """``changed`` gets the changes of a host that have ended."""
        self._hosts = hosts
        self._policies = policies
        self._heads = heads
        self._plans = store.plans
        self._runs = store.runs
        self._audit = store.audit
        self._now = now
        self._new_id = new_id
        self._copier = RunCopier(hosts, heads, store.runs, now, changed)
        self._workers = ThreadPoolExecutor(MAX_RUNS, thread_name_prefix="run")
        self._ends: dict[str, Future[None]] = {}
        """A future by run id, done when the end is stored."""
        self._progressed = threading.Condition()

    def catch_up(self) -> None:
        """Store the outcome of each run whose process died. Call it once, at the start."""
        try:
            for run in self._runs.running():
                self._copier.updated(run)
        except StoreUnavailable as error:
            LOG.warning("runs that a dead process left open are not checked now: %s", error)

    def close(self) -> None:
        self._workers.shutdown(wait=True)

    def apply(self, plan_id: str, options: ApplyOptions, caller: Caller) -> Run:
        plan = self._plans.get(plan_id)
        self._hosts.require(plan.host)
        self._policies.require_compatible(plan.host, f"plan {plan_id}", plan.request)
        refusal = _refusal(plan)
        if refusal is not None:
            allowed = isinstance(refusal, WorsePlan) and options.allow_worse
            result = f"{'allowed' if allowed else 'refused'}: {refusal.code}"
            self._audit.append(audit_event(caller, self._now(), AuditAction.RUN_APPLY, plan.host, plan_id, result))
            if not allowed:
                raise refusal
        return self._start(replace(self._new("apply", plan.host, plan.id, caller), **options.kept), plan, caller)[0]

    def run_to_end(self, plan: Plan, caller: Caller, kind: RunKind, policy: Policy | None = None) -> Run:
        """Raises the agent's refusal. With ``policy`` the run is watched if the policy says so. Raises
        PreconditionFailed, and opens no run, where the host's policy is another one by now."""
        expected = None if policy is None else (revision(policy),)
        begun = self._new(kind, plan.host, plan.id, caller)
        if policy is not None and policy.undo_if_worse:
            begun = replace(begun, watch_seconds=DEFAULT_WATCH_SECONDS, undo_if_worse=True)
        run, ended = self._start(begun, plan, caller, expected)
        ended.result()
        return self.get(run.id)

    def rollback(self, run: str, caller: Caller) -> Run:
        undone = self.get(run)
        self._hosts.require(undone.host)
        self._policies.require_compatible(undone.host, f"the rollback of run {run}", None)
        if undone.kind != "rollback" and undone.state in ("applied", "failed") and not self._runs.entries(run):
            # The agent's journal has no run that was refused.
            raise RunConflict(run, undone.state, NOTHING_CHANGED + self._placed_before(undone))
        rollback = replace(self._new("rollback", undone.host, undone.plan, caller), undoes=run)
        return self._start(rollback, None, caller)[0]

    def rollback_all(self, host: str, caller: Caller) -> Run:
        self._hosts.require(host)
        self._policies.require_compatible(host, "the rollback of all runs", None)
        run = self._new("rollback", host, "", caller)
        return self._start(run, None, caller)[0]

    def _placed_before(self, run: Run) -> str:
        if run.state != "applied":
            return ""
        plan = self._plans.get(run.plan)
        targets = [part.target for part in (*plan.changes, *plan.wanted)]
        earlier = self._runs.last_change(run.host, [part.owner for part in targets])
        return f"; run {earlier} made the changes: roll that run back" if earlier else ""

    def require_idle(self, host: str) -> None:
        for run in self._runs.running():
            if run.host == host and self.get(run.id).state == "running":
                raise HostBusy(host, run.id)

    def get(self, run: str) -> Run:
        return self._copier.updated(self._runs.get(run))

    def list(self, host: str | None, part: PageRequest, *, state: RunState | None = None) -> Page[Run]:
        if host is not None:
            self._hosts.require(host)
        page = self._runs.list(host, part, state=state)
        return Page(tuple(self._copier.updated(run) for run in page.items), page.next)

    def entries(self, run: str) -> tuple[Entry, ...]:
        stored = self.get(run)
        return self._runs.entries(stored.undoes or stored.id)

    def follow(self, run: str) -> Iterator[RunProgress]:
        """Raises NotFound at once."""
        self.get(run)
        return self._follow(run)

    def _follow(self, run_id: str) -> Iterator[RunProgress]:
        follower = RunFollower()
        while True:
            # The run is read first: the entries that are read after its end are complete.
            run = self.get(run_id)
            yield from follower.progress_of(run, *self._runs.news(run.undoes or run.id, follower.seen))
            if run.state != "running":
                return
            with self._progressed:
                self._progressed.wait(POLL_SECONDS)

    def _new(self, kind: RunKind, host: str, plan_id: str, caller: Caller) -> Run:
        return Run(
            id=f"run-{self._new_id()}",
            kind=kind,
            host=host,
            plan=plan_id,
            actor=caller.actor,
            origin=caller.origin,
            state="running",
            started_at=self._now(),
        )

    def _start(
        self, run: Run, plan: Plan | None, caller: Caller, policy: Expected = None
    ) -> tuple[Run, "Future[None]"]:
        """Returns when the agent has begun the run, or raises its refusal."""
        agent = self._hosts.agent(run.host)
        # A reader of the stored run must know it as one of this process, or it closes the run in the agent's journal.
        recorder = self._copier.own(run, caller.request_id)
        try:
            recorder.open(policy)
        except Exception:
            self._copier.forget(run.id)
            raise
        execution = RunExecution(run, plan, recorder, agent, self._heads, self._now, self._notify)
        done = self._workers.submit(execution.carry_out, partial(self._await_turn, run))
        self._ends[run.id] = done
        done.add_done_callback(lambda _: self._forget(run.id))
        execution.wait_begun()
        return self._runs.get(run.id), done

    def _forget(self, run: str) -> None:
        self._copier.forget(run)
        del self._ends[run]

    def _await_turn(self, run: Run) -> None:
        """Return when the end of each earlier run of the host is stored: that of a rollback is also stored as the state
        of the runs that it undoes, and would close a later run, too. A rollback of all runs is refused while an earlier
        run has not begun: that run would change the host again. Raises HostBusy there, and where an end is not stored
        in time."""
        running = [other for other in self._runs.running() if other.host == run.host]
        ids = [other.id for other in running]
        # Another process may have closed this run by now; the agent refuses it then.
        earlier = running[ids.index(run.id) + 1 :] if run.id in ids else []
        for other in running:
            if other.id != run.id and not self._await_end(other) and run.undoes_all and other in earlier:
                raise HostBusy(run.host, other.id)

    def _await_end(self, run: Run) -> bool:
        if (end := self._ends.get(run.id)) is None:
            self._copier.copied(run)
            return self._has_begun(run)
        try:
            has_ended = self._hosts.agent(run.host).run(run.id).ended_at is not None
        except PinnerError:
            return False  # it may not have begun; then the agent makes one run after the other
        # A run that has not ended is refused by the agent, or refuses this one.
        if has_ended:
            try:
                end.result(END_SECONDS)
            except FutureTimeoutError:
                raise HostBusy(run.host, run.id) from None
        return True

    def _has_begun(self, run: Run) -> bool:
        with suppress(PinnerError):
            return bool(self._hosts.agent(run.host).run(run.id))
        return False

    def _notify(self) -> None:
        with self._progressed:
            self._progressed.notify_all()


def _refusal(plan: Plan) -> PinnerError | None:
    if plan.blocked:
        return Blocked(plan.id, plan.blocked)
    if plan.worse:
        terms = (asdict(term) for term in plan.objective.terms if term.asked and term.after != term.before)
        return WorsePlan(plan.id, plan.worse, tuple(terms))
    return None


FLUSH_SECONDS = 0.1
"""The time between two writes of progress; the agent's journal gets every change at once."""


class RunExecution:
    def __init__(
        self,
        run: Run,
        plan: Plan | None,
        recorder: RunRecorder,
        agent: Agent,
        heads: AuditHeads,
        now: Callable[[], datetime],
        notify: Callable[[], None],
    ) -> None:
        """``plan``: of an apply or release; None: a rollback. ``notify`` is called when the store has new progress."""
        self._run = run
        self._plan = plan
        self._recorder = recorder
        self._agent = agent
        self._heads = heads
        self._now = now
        self._notify = notify
        self._begun = threading.Event()
        self._refusal: Exception | None = None
        self._flushed = -FLUSH_SECONDS

    def wait_begun(self) -> None:
        """Returns also when the agent has ended the run. Raises its refusal."""
        self._begun.wait()
        if self._refusal is not None:
            raise self._refusal

    def carry_out(self, await_turn: Callable[[], None]) -> None:
        """Begins after ``await_turn``, and stores the run's end. Never raises."""
        try:
            try:
                await_turn()
                if self._plan is None:
                    end = partial(self._store_end, self._agent.rollback(self._run, self._progress))
                else:
                    end = partial(self._store_end, self._agent.apply(self._plan, self._run, self._progress))
            except Exception as error:
                if not isinstance(error, PinnerError):
                    LOG.exception("run %s failed", self._run.id)
                end = partial(self._fail, error)
            end()
        except StoreUnavailable:
            LOG.exception("the end of run %s is only in the agent's journal; the next request copies it", self._run.id)
        finally:
            self._begun.set()
            self._notify()

    def _store_end(self, ended: Run) -> None:
        """An agent that cannot report the entries now is asked later."""
        try:
            entries, also = self._entries(), self._recorder.undone_later_runs(self._agent.run)
        except PinnerError as error:
            self._log_read_later(error)
        else:
            self._recorder.close(ended, entries, self._heads.exchange(self._run.host), also)

    def _fail(self, error: Exception) -> None:
        begun = self._begun.is_set()
        if not begun:
            self._refusal = error
        known = isinstance(error, RunConflict) and error.details.get("run") == self._run.id
        if known or (begun and not isinstance(error, (HostUnreachable, StoreUnavailable))):
            self._end_as_journaled(error)
        elif begun or isinstance(error, Unanswered):
            self._log_read_later(error)
        else:
            # An agent that answers before the begin has refused the run, and does not begin it any more.
            failed = replace(self._run, state="failed", ended_at=self._now(), error=str(error))
            self._recorder.refuse(failed, error.code if isinstance(error, PinnerError) else PinnerError.code)

    def _end_as_journaled(self, error: Exception) -> None:
        """Only the journal knows which changes were made."""
        try:
            journaled = self._agent.run(self._run.id)
            if journaled.ended_at is not None:
                self._store_end(journaled)
                return
        except PinnerError as unknown:
            error = unknown
        self._log_read_later(error)

    def _entries(self) -> tuple[Entry, ...]:
        return self._agent.entries(self._run.undoes or self._run.id)

    def _log_read_later(self, error: Exception) -> None:
        LOG.error("the end of run %s is read later from the agent's journal: %s", self._run.id, error)

    def _progress(self, entry: Entry, _total: int) -> None:
        """Never raises: a lost database must not stop an apply half-way."""
        try:
            if self._begun.is_set():
                self._recorder.note(entry)
            else:  # the first message says only that the run has begun: the state of its entry is no report of the run
                self._begin()
            if time.monotonic() - self._flushed >= FLUSH_SECONDS:
                self._flushed = time.monotonic()
                self._recorder.flush()
                self._notify()
        except PinnerError as error:
            LOG.warning("the progress of run %s is not stored yet: %s", self._run.id, error)

    def _begin(self) -> None:
        try:
            for entry in self._entries():
                # The agent reports each final entry in its order.
                if not is_final(self._run, entry):
                    self._recorder.note(entry)
        finally:
            self._begun.set()
