"""Starts, shows and ends probes, and ends those whose server has died."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

from pinner.model.change import PlannedChange, Target
from pinner.model.errors import Blocked, Invalid, ProbeBusy
from pinner.model.outcome.outcome import (
    BLOCK,
    CURRENT,
    MAX_PLANS,
    MAX_SECONDS,
    MAX_WINDOWS,
    MIN_SECONDS,
    MIN_WINDOWS,
    PLANNED,
    PROBE_ID,
    Arm,
    Probe,
    ProbeOptions,
    ProbeState,
)
from pinner.model.plan.plan import Plan
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.outcome.verdict import schedule
from pinner.repeated import Repeated
from pinner.service.hosts.hosts import Hosts
from pinner.service.outcome.probe_execution import (
    ProbeExecution,
    Stop,
    Timing,
    changed_guests,
    put_back,
    store_end,
    with_end,
)
from pinner.service.policy.policies import HostPolicies
from pinner.service.runs.runs import RunManager
from pinner.store.repositories import Store
from pinner.worker import Passes, visit

LOG = logging.getLogger(__name__)

STOP_SECONDS = 30.0


class ProbeManager:
    """Several threads may use it; one server serves a host."""

    def __init__(
        self,
        hosts: Hosts,
        policies: HostPolicies,
        runs: RunManager,
        store: Store,
        new_id: Callable[[], str],
        require_measured: Callable[[str], None],
        timing: Timing,
    ) -> None:
        self._hosts = hosts
        self._policies = policies
        self._runs = runs
        self._store = store
        self._new_id = new_id
        self._require_measured = require_measured
        self._timing = timing
        self._interrupted = Repeated(LOG)
        self._guard = threading.Lock()
        self._stops: dict[str, Stop] = {}
        self._threads: dict[str, threading.Thread] = {}
        self.passes = Passes("interrupted probes", self.make_pass, first_seconds=0.0)

    def stop(self) -> None:
        """Returns after each probe of this process has put its placement back."""
        self.passes.stop()
        with self._guard:
            stops, threads = list(self._stops.values()), list(self._threads.values())
        for stop in stops:
            stop.order("interrupted", "the server ended")
        for thread in threads:
            thread.join(STOP_SECONDS)

    def begin(self, plan: str, options: ProbeOptions, caller: Caller) -> Probe:
        if len(options.rivals) >= MAX_PLANS:
            raise Invalid("rivals", len(options.rivals), f"at most {MAX_PLANS - 1}")
        plans = [self._store.plans.get(name) for name in (plan, *options.rivals)]
        host = plans[0].host
        self._hosts.require(host)
        _require_possible(plans, options)
        self._policies.require_compatible(host, f"the probe of plan {plan}", None)
        self._require_measured(host)
        self._require_idle(host)
        probe = self._new(plans, options, caller)
        self._carry_out(probe, plans, caller)
        return probe

    def _new(self, plans: Sequence[Plan], options: ProbeOptions, caller: Caller) -> Probe:
        arms = _arms(plans)
        return Probe(
            id=f"{PROBE_ID}{self._new_id()}",
            host=plans[0].host,
            plans=tuple(plan.id for plan in plans),
            arms=arms,
            actor=caller.actor,
            origin=caller.origin,
            state="running",
            started_at=self._timing.now(),
            order=schedule(options.windows, self._timing.seed(), arms, BLOCK if len(plans) > 1 else 0),
            seconds=options.seconds,
            guests=tuple(sorted(changed_guests(plans).values())),
            keep=options.keep,
        )

    def cancel(self, probe: str, caller: Caller) -> Probe:
        running = self._store.probes.get(probe)
        with self._guard:
            stop = self._stops.get(probe)
        if stop is not None:
            stop.order("cancelled", f"cancelled by {caller.actor}")
        return running

    def wait(self, probe: str) -> None:
        with self._guard:
            thread = self._threads.get(probe)
        if thread is not None:
            thread.join()

    def make_pass(self) -> None:
        visit(self._hosts.names(), self._pass_of)

    def _pass_of(self, host: str) -> None:
        visit(self._store.probes.running(host), self._end_interrupted)

    def _end_interrupted(self, probe: Probe) -> None:
        with self._guard:
            if probe.id in self._stops:
                return
        # Its thread may have stored the end since the pass read it; the thread forgets the probe only then.
        probe = self._store.probes.get(probe.id)
        if probe.state != "running":
            return
        self._interrupted.warn("probe %s was interrupted; the placement is put back", probe.id)
        why = probe.why or "the server ended before the probe"
        # A winner was found, but could neither be kept nor be undone.
        state: ProbeState = "ended" if probe.winner else "interrupted"
        ended = with_end(probe, state, why, put_back(self._runs, probe))
        store_end(self._store.probes, ended, self._timing.now())

    def _require_idle(self, host: str) -> None:
        for probe in self._store.probes.running(host):
            raise ProbeBusy(host, probe.id)
        self._runs.require_idle(host)

    def _carry_out(self, probe: Probe, plans: Sequence[Plan], caller: Caller) -> None:
        stop = Stop()
        execution = ProbeExecution(probe, plans, self._hosts, self._runs, self._store.probes, self._timing, stop)
        thread = threading.Thread(target=self._run, args=(probe.id, execution), name=probe.id, daemon=True)
        tested = f"{'plans' if probe.is_tournament else 'plan'} {', '.join(probe.plans)}"
        result = f"{len(probe.order)} windows of {probe.seconds} s, {tested}"
        event = audit_event(caller, probe.started_at, AuditAction.PROBE_BEGIN, probe.host, probe.id, result)
        with self._guard:
            # A pass must know the probe as one of this process before it is stored.
            self._stops[probe.id], self._threads[probe.id] = stop, thread
        try:
            self._store.probes.add(probe, event)
        except Exception:
            self._forget(probe.id)
            raise
        thread.start()

    def _run(self, probe: str, execution: ProbeExecution) -> None:
        try:
            execution.carry_out()
        finally:
            self._forget(probe)

    def _forget(self, probe: str) -> None:
        with self._guard:
            del self._stops[probe], self._threads[probe]


def _arms(plans: Sequence[Plan]) -> tuple[Arm, ...]:
    if len(plans) == 1:
        return (CURRENT, PLANNED)
    names = [plan.request.strategy for plan in plans]
    return (CURRENT, *(plan.id if names.count(name) > 1 else name for plan, name in zip(plans, names, strict=True)))


def _require_possible(plans: Sequence[Plan], options: ProbeOptions) -> None:
    windows, seconds = options.windows, options.seconds
    if not MIN_WINDOWS <= windows <= MAX_WINDOWS:
        raise Invalid("windows", windows, f"{MIN_WINDOWS} to {MAX_WINDOWS}")
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise Invalid("seconds", seconds, f"{MIN_SECONDS} to {MAX_SECONDS}")
    if len(plans) > 1 and windows % BLOCK:
        raise Invalid("windows", windows, f"a multiple of {BLOCK}: a block has {BLOCK} windows of each placement")
    for plan in plans:
        if plan.blocked:
            raise Blocked(plan.id, plan.blocked)
        if not plan.changes:
            raise Blocked(plan.id, "it changes nothing, so there is nothing to compare")
        if plan.host != plans[0].host:
            raise Invalid("rivals", plan.id, f"a plan of host {plans[0].host}")
    for one, other in combinations(plans, 2):
        if _placed(one) == _placed(other):
            raise Invalid("rivals", other.id, f"another placement than that of plan {one.id}")


def _placed(plan: Plan) -> dict[tuple[str, Target], PlannedChange]:
    return {(change.kind, change.target): replace(change, reason="") for change in plan.changes}
