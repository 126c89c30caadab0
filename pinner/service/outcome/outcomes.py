"""The measures before and after each run, and the watch of a run that may undo it."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from pinner.model.change import guests_of
from pinner.model.errors import (
    Busy,
    HostBusy,
    HostUnreachable,
    Invalid,
    NotFound,
    Overloaded,
    PinnerError,
    RunConflict,
    StoreUnavailable,
    TooFewMeasures,
)
from pinner.model.outcome.outcome import RunOutcome, Sample, Watch
from pinner.model.plan.objective import Term
from pinner.model.plan.plan import Plan
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.model.run.journal import MAX_WATCH_SECONDS, MIN_WATCH_SECONDS, ApplyOptions, Run
from pinner.outcome.samples import JUDGED, observed, samples, watched_measures
from pinner.outcome.watch import IN_A_ROW, is_blind, known_steps, unwatched, worse
from pinner.repeated import Repeated
from pinner.service.hosts.hosts import Hosts
from pinner.service.outcome.measures import LATE, SPAN, STEP, RunSampleReader, RunSamples, needed_steps, watched_span
from pinner.service.policy.policies import HostPolicies
from pinner.service.runs.runs import RunManager
from pinner.store.repositories import Store
from pinner.worker import Passes, visit

LOG = logging.getLogger(__name__)

KEPT = timedelta(days=1)
"""The age of a run up to which its outcome is stored: later its steps are longer than the span."""

_OVER_LATER = (HostUnreachable, HostBusy, Busy, Overloaded, StoreUnavailable)
"""After these errors a later rollback may succeed; after others the watch ends, and a person decides."""


class OutcomeKeeper:
    """Several threads may ask for an outcome; one thread makes passes."""

    def __init__(
        self, hosts: Hosts, policies: HostPolicies, runs: RunManager, store: Store, now: Callable[[], datetime]
    ) -> None:
        self._hosts = hosts
        self._policies = policies
        self._runs = runs
        self._store = store
        self._now = now
        self._failures = Repeated(LOG)
        self._has_failed = False
        self._samples = RunSampleReader(hosts, runs, now)
        self.passes = Passes("outcomes of runs", self.make_pass)

    def outcome(self, run: str) -> RunOutcome:
        ended = self._runs.get(run)
        watch = self._watch(ended)
        if (stored := self._store.outcomes.observed(run)) is not None:
            return replace(stored, watch=watch)
        if ended.ended_at is None:
            raise RunConflict(run, ended.state, "its outcome can be measured after its end")
        return replace(self._observed(ended), watch=watch)

    def require_watchable(self, plan: Plan, options: ApplyOptions) -> None:
        """Raises Invalid for an impossible watch, NotFound where nothing was measured, and TooFewMeasures."""
        if not (seconds := options.watch_seconds):
            return
        if not MIN_WATCH_SECONDS <= seconds <= MAX_WATCH_SECONDS:
            raise Invalid("watch_seconds", seconds, f"0, or {MIN_WATCH_SECONDS} to {MAX_WATCH_SECONDS}")
        self.require_measured(plan.host)
        if options.undo_if_worse and plan.changes:
            guests = guests_of(change.target for change in plan.changes)
            require_sight(self._samples.before(plan.host, guests, seconds), seconds)

    def require_measured(self, host: str) -> None:
        now = self._now()
        histories = self._hosts.agent(host).measures(now - SPAN, now, STEP, "", JUDGED)
        if not samples(histories, (), STEP):
            raise NotFound("measures", f"of host {host} in the last {SPAN.seconds // 60} minutes")

    def make_pass(self) -> None:
        self._has_failed = False
        visit(self._hosts.names(), self._pass_of)
        if not self._has_failed:
            self._failures.over("the outcomes of runs are stored again")

    def _pass_of(self, host: str) -> None:
        steps = (
            (self._look, "the watch of run %s does not go on now: %s"),
            (self._keep_observed, "the outcome of run %s is not stored: %s"),
        )
        setback = self._store.policies.setback(host)
        for run in self._store.outcomes.due(host, self._now() - KEPT, setback.run if setback else ""):
            for step, message in steps:
                try:
                    step(run)
                except PinnerError as error:  # the other runs do not depend on it
                    self._failures.warn(message, run.id, error)
                    self._has_failed = True
                except Exception:  # nor on an error in this program
                    self._failures.exception(message, run.id, "an unforeseen error")
                    self._has_failed = True

    def _keep_observed(self, run: Run) -> None:
        is_old = run.ended_at is not None and self._now() - run.ended_at > KEPT
        if is_old or self._store.outcomes.observed(run.id) is not None:
            return
        if (outcome := self._observed(run)).is_final:
            self._store.outcomes.put_observed(outcome)

    # -- observed --

    def _observed(self, run: Run) -> RunOutcome:
        run_samples = self._samples.observed(run)
        before, after = run_samples.before, run_samples.after
        measures = tuple(observed(measure, before, after) for measure in watched_measures(before, after))
        is_final = self._now() >= run_samples.end + LATE
        return RunOutcome(
            run.id,
            "observed, not tested",
            self._expected(run),
            tuple(sorted(run_samples.guests.values())),
            run_samples.control,
            run_samples.begin,
            run_samples.end,
            run_samples.step,
            measures,
            tuple(run_samples.notes(measures, is_final=is_final)),
            is_final,
        )

    def _expected(self, run: Run) -> tuple[Term, ...]:
        if run.kind != "apply":
            return ()
        return tuple(term for term in self._store.plans.get(run.plan).objective.terms if term.before != term.after)

    # -- watched --

    def _watch(self, run: Run) -> Watch | None:
        if not run.watch_seconds:
            return None
        now = self._now()
        if (stored := self._store.outcomes.watch(run.id)) is None:
            # No pass looks at a run that ended long ago, or before the clock was set forward.
            is_old = run.ended_at is not None and now - run.ended_at > KEPT and not self._setback(run)
            ended = out_of_time(run, now) if is_old else None
            why = f"the guests are watched for {run.watch_seconds} s"
            return ended or Watch("watching", now, why + self._sight(run))
        return replace(stored, why=f"{stored.why}; it is not undone yet") if _goes_on(stored) else stored

    def _sight(self, run: Run) -> str:
        try:
            spots = blind_spots(self._samples.watched(run, timedelta(0)).before, run.watch_seconds)
        except HostUnreachable as error:
            spots = f"what it sees is not known now: {error}"
        return f"; {spots}" if spots else ""

    def _look(self, run: Run) -> None:
        """A restart ends no watch: the guard follows from the stored measures."""
        stored = self._store.outcomes.watch(run.id)
        if not run.watch_seconds or run.ended_at is None or not _goes_on(stored):
            return
        now, known = self._now(), stored.why if stored else self._setback(run)
        if (ended := self._without_a_look(run, now, known)) is not None:
            self._end_watch(run, ended)
            return
        if known:
            self._undo(run, known)
            return
        run_samples = self._samples.watched(run, watched_span(run.watch_seconds))
        steps = (watch_end(run) - run.started_at).total_seconds() / run_samples.step
        if worsened := worse(run_samples.before, run_samples.after, steps, needed_steps(run.watch_seconds)):
            names = " and ".join(measure.name for measure in worsened)
            self._end_worse(run, f"worse than before the run, after {len(run_samples.after)} steps: {names}")
        elif run_samples.why or is_over(run, run_samples, now):
            self._end_watch(run, undecided(run_samples, run.watch_seconds, now))

    def _setback(self, run: Run) -> str:
        setback = self._store.policies.setback(run.host)
        return setback.why if setback is not None and setback.run == run.id else ""

    def _without_a_look(self, run: Run, now: datetime, known: str) -> Watch | None:
        """The end of a watch that cannot go on. A run that was found worse (``known``) is undone however late."""
        if run.state not in ("applied", "applied_partly"):
            undo = self._undo_of(run)
            if undo is not None and undo.origin == _origin(run):
                why = known or "worse than before the run; the server ended before it stored why"
                return Watch("worse", now, why, undo.id)
            why = f"the run is {run.state}, by {undo.actor if undo else 'its own end'}"
            if known:
                return Watch("worse", now, f"{known}; {why}", undo.id if undo else "")
            return Watch("stopped", now, why)
        return None if known else out_of_time(run, now)

    def _undo_of(self, run: Run) -> Run | None:
        latest = [later for later in self._samples.latest(run.host) if later.state != "failed"]
        of_all = (later for later in reversed(latest) if later.undoes_all and later.started_at >= run.started_at)
        return next((later for later in latest if later.undoes == run.id), None) or next(of_all, None)

    def _end_worse(self, run: Run, why: str) -> None:
        if not run.undo_if_worse:
            self._end_watch(run, Watch("worse", self._now(), why))
            return
        LOG.warning("run %s is rolled back: %s", run.id, why)
        # The setback is stored before the rollback: an enforced policy would make the same change again at once.
        self._policies.set_back(run, why, _caller(run))
        self._undo(run, why)

    def _undo(self, run: Run, why: str) -> None:
        """The verdict is stored first, for the next pass if the agent cannot undo the run now. The policy stays where a
        person has set it since."""
        self._runs.get(run.id)  # a purged run gets no verdict
        if self._store.outcomes.watch(run.id) is None:
            self._store.outcomes.put_watch(run.id, Watch("watching", self._now(), why))
        self._require_ready(run)
        try:
            undo = self._runs.rollback(run.id, _caller(run))
        except _OVER_LATER:
            raise
        except RunConflict as refusal:
            self._undo_later_run(run, why, refusal)
        except PinnerError as refusal:
            self._end_watch(run, not_undone(why, refusal, self._now()))
        else:
            self._end_watch(run, Watch("worse", self._now(), why, undo.id))

    def _undo_later_run(self, run: Run, why: str, refusal: RunConflict) -> None:
        """Roll back the policy's run that stands in the way; the watch stays open for the next pass."""
        if (again := self._samples.changed_again(run)) is None:
            self._end_watch(run, not_undone(why, refusal, self._now()))
            return
        LOG.warning("run %s is rolled back first: %s", again.id, refusal)
        try:
            self._runs.rollback(again.id, _caller(run))
        except _OVER_LATER:
            raise
        except PinnerError as error:
            self._end_watch(run, not_undone(why, error, self._now()))

    def _require_ready(self, run: Run) -> None:
        """Raises HostUnreachable or HostBusy: a refused rollback would be a run, and many of them hide earlier runs."""
        with suppress(NotFound):
            self._hosts.agent(run.host).run(run.id)
        self._runs.require_idle(run.host)

    def _end_watch(self, run: Run, watch: Watch) -> None:
        result = f"{watch.state}: {watch.why}" + (f"; run {watch.rollback} undoes it" if watch.rollback else "")
        event = audit_event(_caller(run), watch.at, AuditAction.RUN_WATCH, run.host, run.id, result)
        self._store.outcomes.put_watch(run.id, watch, event)


def _origin(run: Run) -> str:
    return f"the watch of run {run.id}"


def _caller(run: Run) -> Caller:
    return Caller(run.actor, _origin(run), "")


def _goes_on(stored: Watch | None) -> bool:
    return stored is None or stored.state == "watching"


def require_sight(before: Sequence[Sample], watch_seconds: int) -> None:
    if not is_blind(before, least := needed_steps(watch_seconds)):
        return
    missing = least - max(unwatched(before, least).values())
    raise TooFewMeasures(blind_spots(before, watch_seconds), missing * STEP)


def blind_spots(before: Sequence[Sample], watch_seconds: int) -> str:
    least = needed_steps(watch_seconds)
    short = [f"{measure.name} ({least - count} of {least})" for measure, count in unwatched(before, least).items()]
    return f"not watched, because steps before the run are missing: {', '.join(short)}" if short else ""


def watch_end(run: Run) -> datetime:
    assert run.ended_at is not None
    return run.ended_at + watched_span(run.watch_seconds)


def is_over(run: Run, run_samples: RunSamples, now: datetime) -> bool:
    """The end is LATE later where the last steps, which the watch needs, are not complete."""
    is_decidable = known_steps(run_samples.before, run_samples.after, needed_steps(run.watch_seconds)) >= IN_A_ROW
    return now >= watch_end(run) + (timedelta(0) if is_decidable else LATE)


def out_of_time(run: Run, now: datetime) -> Watch | None:
    assert run.ended_at is not None
    # The agent puts the history from before the step aside.
    if run.ended_at < run.started_at - LATE:
        at = run.ended_at.isoformat(timespec="seconds")
        return Watch("stopped", now, f"the clock was set back to {at}, before the begin of the run; nothing was undone")
    if now < run.ended_at - LATE:
        at = now.isoformat(timespec="seconds")
        return Watch("stopped", now, f"the clock was set back to {at}, before the end of the run; nothing was undone")
    if (late := now - watch_end(run)) > SPAN:
        seconds = f"{late.total_seconds():.0f} s"
        return Watch("stopped", now, f"no server looked in time: it is {seconds} too late; nothing was undone")
    return None


def undecided(run_samples: RunSamples, watch_seconds: int, now: datetime) -> Watch:
    least, spots = needed_steps(watch_seconds), blind_spots(run_samples.before, watch_seconds)
    if not (run_samples.before and run_samples.after):
        return Watch("stopped", now, run_samples.why or "nothing was measured before the run, or after it")
    if not run_samples.why and is_blind(run_samples.before, least):
        return Watch("stopped", now, f"{spots}; nothing was undone")
    if not run_samples.why and (count := known_steps(run_samples.before, run_samples.after, least)) < IN_A_ROW:
        return Watch("stopped", now, f"only {count} of {IN_A_ROW} steps after the run are known; nothing was undone")
    steps = f"in {len(run_samples.after)} steps"
    if spots:
        steps += f"; {spots}"
    if run_samples.why:
        return Watch("stopped", now, f"{run_samples.why}; not worse until then, {steps}")
    return Watch("not_worse", now, f"no measure became worse for certain, {steps}")


def not_undone(why: str, refusal: PinnerError, now: datetime) -> Watch:
    return Watch("worse", now, f"{why}; it cannot be undone: {refusal}")
