"""TrialKeeper: lets a policy probe each kind of change that is new on a host before the policy makes it."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from statistics import fmean

from pinner.model.audit import POLICY_ACTOR, Caller
from pinner.model.backoff import Backoff
from pinner.model.change import PlannedChange, TargetKey
from pinner.model.errors import NotFound, PinnerError
from pinner.model.groups import group_of, is_of_the_host
from pinner.model.measures import HOST, ROWS
from pinner.model.plan import Plan
from pinner.model.policy import Policy
from pinner.model.probe import Probe
from pinner.model.trial import KEEPING, ChangeKind, Trial, Waiting, change_kind, without_names
from pinner.outcome.samples import USES, control_use
from pinner.planning.canary import canary_plan, untested
from pinner.planning.leaving_out import leave_out
from pinner.repeated import Repeated
from pinner.service.backoffs import HostBackoffs
from pinner.service.hosts import Hosts
from pinner.service.observation import Observation
from pinner.service.plans import PlanMaker
from pinner.service.policies import HostPolicies
from pinner.service.probes import ProbeManager
from pinner.store.repositories import Store

LOG = logging.getLogger(__name__)

ACTIVITY = timedelta(minutes=5)
"""The time before the probe in which the CPU use of a guest is its activity."""


class TrialKeeper:
    """The trials of all hosts. Nothing is kept in memory: after a restart, a server goes on."""

    def __init__(
        self,
        hosts: Hosts,
        policies: HostPolicies,
        plans: PlanMaker,
        probes: ProbeManager,
        store: Store,
        watched_run: Callable[[str], str],
        now: Callable[[], datetime],
    ) -> None:
        """``watched_run`` returns the run of a host whose watch a probe would end; empty: there is none."""
        self._hosts = hosts
        self._policies = policies
        self._plans = plans
        self._probes = probes
        self._store = store
        self._watched_run = watched_run
        self._now = now
        self._backoffs = HostBackoffs(store, now)
        self._failures = Repeated(LOG)

    def store_verdicts(self, host: str, policy: Policy | None) -> None:
        """Store the verdicts of the probes that have ended. After ``worse``, the policy proposes."""
        if policy is None or not policy.probe_first:
            return
        due = [each for each in self._trials(host, policy) if each.judgement is None]
        for name in sorted({each.probe for each in due}):
            probe = self._probe(name)
            if probe is None or probe.outcome is None:
                continue
            if probe.outcome.judgement == "worse":
                caller = Caller(POLICY_ACTOR, probe.mark, "")
                # Stored before the verdict: a server that dies here finds the probe again, and the mode is set once.
                self._policies.set_back_after(probe, _worse(probe), caller)
            judged = [each for each in due if each.probe == name]
            self._store.trials.put(replace(each, judgement=probe.outcome.judgement, attempts=0) for each in judged)

    def waiting(
        self, host: str, seen: Observation, skipped: Mapping[TargetKey, str], caller: Caller | None
    ) -> tuple[dict[TargetKey, str], Waiting | None]:
        """Why the policy does not make some changes yet, by their targets.

        Begins their probe, unless ``caller`` is None or a probe is under way. ``skipped`` are the targets that the
        policy leaves out anyway.
        """
        policy, plan = seen.policy, seen.plan
        if policy is None or plan is None or policy.mode != "enforce" or not policy.probe_first or seen.error:
            return {}, None
        trials = self._trials(host, policy)
        new = untested(plan, [each.kind for each in trials if each.judgement in KEEPING])
        if not new:
            return {}, None
        found = self._under_way(host, trials) or self._begun(host, seen, trials, new, skipped, caller)
        found = replace(found, changes=len(new))
        return dict.fromkeys((change.target.key for change in new), f"it waits: {found.why}"), found

    def _under_way(self, host: str, trials: Iterable[Trial]) -> Waiting | None:
        """The probe of the host's trials that has not ended, or the back-off after one without a verdict. The probe of
        a guest that could not be placed has none: the guest backs off itself, and no other one waits for it."""
        for trial in trials:
            if trial.judgement is not None or (probe := self._probe(trial.probe)) is None:
                continue
            if probe.ended_at is None:
                return _tested_by(probe)
            if probe.outcome is not None:
                return Waiting("", None, 0, f"the verdict of probe {probe.id} is not stored yet")
            if self._backs_off_itself(host, probe):
                continue
            until = Backoff(trial.attempts, probe.ended_at, probe.state).backoff_until
            # A clock that was set back makes no back-off longer.
            if probe.ended_at <= self._now() < until:
                why = f"probe {probe.id} is {probe.state}: {probe.why}"
                return Waiting("", until, 0, f"{why}; the next one begins after {until.isoformat(timespec='seconds')}")
        return None

    def _backs_off_itself(self, host: str, probe: Probe) -> bool:
        """Whether a guest or process of the probe backs off because the probe could not place it."""
        with suppress(NotFound):  # the plan may be purged
            groups = {group_of(change.target) for change in self._store.plans.get(probe.plan).changes}
            backoffs = self._backoffs.of(host)
            return any(each.error and each.last >= probe.started_at for key, each in backoffs.items() if key in groups)
        return False

    def _begun(
        self,
        host: str,
        seen: Observation,
        trials: Iterable[Trial],
        new: Iterable[PlannedChange],
        skipped: Mapping[TargetKey, str],
        caller: Caller | None,
    ) -> Waiting:
        """Begin the probe of these changes."""
        assert seen.policy is not None
        assert seen.plan is not None
        for drift in seen.drifts:
            if is_of_the_host(drift.target) and drift.backoff_until:
                # Such a change is made for all targets.
                why = f"{drift.target} could not be changed: {drift.detail}"
                return Waiting("", drift.backoff_until, 0, why)
        if caller is None:
            return Waiting("", None, 0, "no probe has tested such changes yet")
        try:
            left = leave_out(seen.plan, skipped, seen.placement, seen.snapshot)
            probed = {change.target.key for change in new} - skipped.keys()
            if any(change.target.key not in probed for change in left.changes):
                return Waiting("", None, 0, "the changes whose kinds are tested are made first")
            if watched := self._watched_run(host):
                return Waiting("", None, 0, f"the guests are watched after run {watched}")
            failures = {group: each.times for group, each in self._backoffs.of(host).items() if each.error}
            plan = canary_plan(left, probed, self._uses(host), seen.placement, seen.snapshot, failures)
            if not plan.changes:
                return Waiting("", None, 0, "no probe has tested such changes yet, and none of them is possible now")
            self._plans.keep(seen.snapshot, plan, caller)
            wanted = tuple(_next(seen.policy, plan, trials))
            begun = self._probes.begin_trials(plan, seen.policy, wanted, caller)
        except PinnerError as error:
            self._failures.warn("host %s: its policy waits, because no probe can begin: %s", host, error)
            return Waiting("", None, 0, f"no probe can begin: {error}")
        self._failures.over(f"host {host}: the probe of its policy begins")
        return _tested_by(begun)

    def _uses(self, host: str) -> dict[str, float]:
        """The mean CPU use of each guest, by UUID. 100 is one CPU."""
        now, step = self._now(), min(ROWS)
        found = self._hosts.agent(host).measures(now - ACTIVITY, now, step, "", USES)
        guests = [each for each in found if each.subject != HOST]
        uses = {each.subject: control_use([each], (), now - ACTIVITY, now, step) for each in guests}
        return {guest: fmean(use) for guest, use in uses.items() if use}

    def _trials(self, host: str, policy: Policy) -> tuple[Trial, ...]:
        return self._store.trials.of(host, without_names(policy.request))

    def _probe(self, name: str) -> Probe | None:
        with suppress(NotFound):  # it may be purged
            return self._store.probes.get(name)
        return None


def _next(policy: Policy, plan: Plan, trials: Iterable[Trial]) -> Iterator[Trial]:
    """The trials that the probe of a plan carries out."""
    attempts: dict[ChangeKind, int] = {each.kind: each.attempts for each in trials}
    for kind in sorted({change_kind(change.target) for change in plan.changes}):
        yield Trial(plan.host, without_names(policy.request), kind, "", attempts.get(kind, 0) + 1)


def _tested_by(probe: Probe) -> Waiting:
    on = f"on guest {', '.join(probe.guests)}" if probe.guests else "on the host"
    return Waiting(probe.id, None, 0, f"probe {probe.id} tests such changes {on} first")


def _worse(probe: Probe) -> str:
    assert probe.outcome is not None
    names = " and ".join(each.measure.name for each in probe.outcome.measures if each.judgement == "worse")
    return f"worse than the placement that the probe found: {names}"
