"""RunSides: reads what was measured before and after a run."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pinner.model.audit import POLICY_ACTOR
from pinner.model.errors import NotFound
from pinner.model.groups import guests_of
from pinner.model.journal import Run
from pinner.model.measures import HOST, finest
from pinner.model.outcome import Sample
from pinner.model.page import PageRequest
from pinner.model.probe import PROBE_ORIGIN
from pinner.outcome.samples import between, samples
from pinner.service.hosts import Hosts
from pinner.service.runs import RunManager

SPAN = timedelta(minutes=5)
"""The length of the measures before a run, and of those after it."""

ENOUGH_STEPS = 6
"""So many steps since the last run of a policy suffice as the measures before the next one."""

_NEIGHBOURS = 50
"""How many of the latest runs of a host are read to find those beside a run."""

_DISTURBING = ("guest-reset", "guest-paused", "guest-stopped", "guest-started")
"""The kinds of events of a guest after which its measures cannot be compared with those from before."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The samples beside a run."""

    guests: dict[str, str]
    """The guests that the run changed: UUID to name."""
    control: tuple[str, ...]
    begin: datetime
    end: datetime
    step: int
    before: tuple[Sample, ...]
    after: tuple[Sample, ...]
    why: str
    """Why the samples end before their time; or why there are none."""


@dataclass(frozen=True, slots=True)
class _Disturbance:
    """A moment at which something disturbed the measures beside a run."""

    at: datetime
    is_later: bool
    """Whether it was after the begin of the run."""
    what: str


class RunSides:
    """The measures beside the runs of all hosts. Several threads may use it."""

    def __init__(self, hosts: Hosts, runs: RunManager, now: Callable[[], datetime]) -> None:
        self._hosts = hosts
        self._runs = runs
        self._now = now

    def observed(self, run: Run) -> Sides:
        """The samples before and after the run, as far as nothing else disturbed them."""
        return self._sides(run, SPAN, ())

    def watched(self, run: Run, span: timedelta) -> Sides:
        """The samples by which the watch of a run judges it, ``span`` long after it.

        The watch of a policy's run goes on through the next runs of the policy: else frequent runs, as of guests that
        start one after the other, would leave no time to find one of them worse. A release of another guest does not
        end it, either. Before the run, the samples since the last run of the policy count, if they are enough.
        """
        own = self._runs_through(run)
        near = self._sides(run, span, [each for each in own if each.started_at >= run.started_at])
        return near if len(near.before) >= ENOUGH_STEPS else self._sides(run, span, own)

    def changed_again(self, run: Run) -> Run | None:
        """The latest run of a policy that changed a target of its earlier ``run`` again, or of a run in between which
        did so. It must be rolled back before them. None: there is none."""
        found, targets = None, self._targets(run)
        for later in reversed(self._runs_through(run)):
            changed = self._targets(later)
            if (
                later.started_at >= run.started_at
                and later.state in ("applied", "applied_partly")
                and changed & targets
            ):
                found, targets = later, targets | changed
        return found

    def latest(self, host: str) -> tuple[Run, ...]:
        """The latest runs of the host, the last one first."""
        return self._runs.list(host, PageRequest(_NEIGHBOURS), state=None).items

    def _runs_through(self, run: Run) -> list[Run]:
        """The other runs beside a policy's run that do not disturb its watch, the last one first."""
        if run.actor != POLICY_ACTOR:
            return []
        guests = self._guests(run).keys()
        others = (other for other in self.latest(run.host) if other.id != run.id)
        return [other for other in others if self._is_of_policy(other) or self._is_release_beside(other, guests)]

    @staticmethod
    def _is_of_policy(run: Run) -> bool:
        """Whether the policy has made the run, or a watch has rolled back one that the policy made."""
        return run.actor == POLICY_ACTOR and run.kind != "release" and not run.origin.startswith(PROBE_ORIGIN)

    def _is_release_beside(self, run: Run, guests: Collection[str]) -> bool:
        return run.kind == "release" and self._guests(run).keys().isdisjoint(guests)

    def _sides(self, run: Run, span: timedelta, through: Iterable[Run]) -> Sides:
        """The samples before and after the run, as far as nothing but the runs ``through`` disturbed them."""
        first, ended, now = run.started_at - SPAN, run.ended_at or self._now(), self._now()
        guests = self._guests(run)
        begin, end, why = first, ended + span, ""
        for each in self._disturbances(run, guests, {other.id for other in through}):
            if each.is_later and each.at < end:
                end, why = max(ended, each.at), each.what
            elif not each.is_later and begin < each.at <= run.started_at:
                begin = each.at
        step = finest(first, now)
        try:
            histories = self._hosts.agent(run.host).measures(first, min(ended + span, now), step, "")
        except NotFound as error:
            return Sides(guests, (), begin, end, step, (), (), str(error))
        known = {each.subject: each.name for each in histories if each.subject != HOST}
        guests = guests or known
        # A count is spread over the steps that it touches: the steps beside the run have a part of the run in them.
        wash = timedelta(seconds=step)
        found = samples(histories, guests, step)
        return Sides(
            guests,
            tuple(sorted(name for uuid, name in known.items() if uuid not in guests and name)),
            begin,
            end,
            step,
            between(found, begin, run.started_at - wash, step),
            between(found, ended + wash, end, step),
            why,
        )

    def _disturbances(self, run: Run, guests: Mapping[str, str], through: set[str]) -> Iterator[_Disturbance]:
        """What disturbed the measures beside the run: other runs on the host, and guests of the run that were started,
        stopped, reset or paused."""
        for other in self.latest(run.host):
            if other.id in (run.id, *through) or other.state == "failed":
                continue
            is_later = other.started_at >= run.started_at
            if (at := other.started_at if is_later else other.ended_at) is not None:
                yield _Disturbance(at, is_later, f"run {other.id} changed the host then")
        for event in self._hosts.agent(run.host).host_events(0, 0.0, None):
            if event.kind in _DISTURBING and event.subject in guests:
                what = f"guest {guests[event.subject]} was {event.kind.removeprefix('guest-')} then"
                yield _Disturbance(event.at, event.at > run.started_at, what)

    def _guests(self, run: Run) -> dict[str, str]:
        return guests_of(entry.change.target for entry in self._runs.entries(run.id))

    def _targets(self, run: Run) -> set[object]:
        return {entry.change.target.key for entry in self._runs.entries(run.id)}
