"""Guests come and go for 1,000 events: the placement that drifts from event to event, beside planning afresh.

Run ``python tests/benchmarks/planning/churn.py [EVENTS]``. The host has 256 CPUs. A guest of the next random size comes
if the pool then is at most 90 % (or 97 %) full; otherwise a random guest goes. After each event pinner plans from the
recorded placement with the strategy ``isolated``, as a policy does, and the plan is applied. Every 25 events, once the
host is full, the drifted placement and a plan for the same guests without any placement are judged, and the counts are
added up. In the second form a rebalance is asked for at these moments; where the planner takes it, it is applied.
"""

import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.peers.generated import GUEST_MEMORY, SIZES, Mix, Shape, host
from benchmarks.peers.quality import NOTHING, Judge, Quality, places_of
from benchmarks.report.timing import Row, Time, line, timed
from support.hosts import applied, guest

from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Placement, Plan
from pinner.model.plan.request import Request
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement

SHAPE = Shape(256, 4, 8)
FILLS = (0.90, 0.97)
EVENTS = 1000
LOOK = 25
"""Events from one judgement to the next."""
SEED = 15
REQUEST = Request("isolated")


@dataclass(frozen=True, slots=True)
class Event:
    """A guest comes, or the guest of this number goes."""

    number: int
    vcpus: int
    """0: the guest goes."""


def events(room: int, mix: Mix, seed: int, count: int) -> Iterator[Event]:
    """The events of a host with ``room`` CPUs for guests. They do not depend on any placement."""
    draw, present, following = random.Random(seed), dict[int, int](), 0
    size = draw.choice(SIZES[mix])
    for _ in range(count):
        if sum(present.values()) + size <= room:
            present[following] = size
            yield Event(following, size)
            following, size = following + 1, draw.choice(SIZES[mix])
        else:
            gone = draw.choice(sorted(present))
            del present[gone]
            yield Event(gone, 0)


@dataclass
class Outcome:
    """What one run of churn has shown: sums over all judgements."""

    drifted: Quality = NOTHING
    fresh: Quality = NOTHING
    looks: int = 0
    taken: int = 0
    """Rebalances that the planner took."""
    times: list[Time] = field(default_factory=list)
    """Of the plan after each event."""
    fresh_times: list[Time] = field(default_factory=list)


class Host:
    """The host as it drifts."""

    def __init__(self) -> None:
        self.hardware, self.pool = SHAPE.hardware
        self.judge = Judge(self.hardware, self.pool)
        self._now = host(self.hardware, [])
        self._placement: Placement | None = None

    @property
    def guests(self) -> tuple[Guest, ...]:
        """The guests with their present affinities."""
        return self._now.guests

    def happens(self, event: Event) -> None:
        """A guest comes or goes; a guest that comes is not placed yet."""
        if event.vcpus:
            came = self.unplaced(event.number, event.vcpus)
            self._now = replace(self._now, guests=(*self.guests, came))
        else:
            name = f"g{event.number}"
            self._now = replace(self._now, guests=tuple(each for each in self.guests if each.name != name))

    def unplaced(self, number: int, vcpus: int) -> Guest:
        """A guest as it starts."""
        floor = self.hardware.online - self.pool
        return guest(number, vcpus, floor, memory={}, memory_kib=GUEST_MEMORY)

    def apply(self, request: Request) -> tuple[Time, Plan]:
        """Plan from the recorded placement and apply the plan."""
        took, made = timed(plan_from_placement, self._now, "s", request, self._placement)
        self._placement = record(made, self._now, self._placement)
        self._now = applied(self._now, made)
        return took, made

    def afresh(self) -> tuple[Time, Quality]:
        """The plan for the same guests on an empty host, and its quality."""
        guests = [self.unplaced(int(each.name.removeprefix("g")), len(each.vcpus)) for each in self.guests]
        took, made = timed(plan, host(self.hardware, guests), "s", REQUEST)
        return took, self.judge.quality(places_of(made.wanted, guests))


def churned(full: float, mix: Mix, *, rebalance: bool, count: int = EVENTS) -> Outcome:
    """Let the events happen."""
    here, found, reached = Host(), Outcome(), False
    for number, event in enumerate(events(int(full * len(here.pool)), mix, SEED, count), start=1):
        here.happens(event)
        took, made = here.apply(REQUEST)
        found.times.append(took)
        reached = reached or not event.vcpus
        if reached and number % LOOK == 0:
            fresh_took, fresh = here.afresh()
            found.fresh_times.append(fresh_took)
            found.drifted += here.judge.quality(places_of(made.wanted, here.guests))
            found.fresh += fresh
            found.looks += 1
            if rebalance:
                _, anew = here.apply(replace(REQUEST, rebalance=True))
                found.taken += bool(anew.rebalance and anew.rebalance.taken and anew.rebalance.guests)
    return found


def row(full: float, mix: Mix, found: Outcome, *, rebalance: bool, count: int) -> Row:
    """The row of one run: the drifted placement beside planning afresh."""
    asked = f", a rebalance asked every {LOOK}" if rebalance else ""
    parts = [
        f"drifted / fresh: L3 {_ratio(found.drifted.extra_l3, found.fresh.extra_l3)}",
        f"shared cores {_ratio(found.drifted.shared_cores, found.fresh.shared_cores)}",
        f"slowest event {max(each.cpu for each in found.times):.0f} ms",
        *([f"rebalances taken {found.taken} of {found.looks}"] if rebalance else []),
    ]
    made = line(
        f"churn, {SHAPE.cpus} CPUs, {full:.0%} full, {mix} sizes, {count:,} events{asked}",
        _median(found.times),
        found.drifted,
        peer="planning afresh",
        theirs=_median(found.fresh_times) if found.fresh_times else None,
        its_quality=found.fresh,
    )
    return made | {"more": f"{found.looks} judgements; {', '.join(parts)}"}


def rows(count: int = EVENTS) -> Iterator[Row]:
    """A row for each fill and mix, without and with rebalances."""
    for full in FILLS:
        for mix in SIZES:
            for rebalance in (False, True):
                found = churned(full, mix, rebalance=rebalance, count=count)
                yield row(full, mix, found, rebalance=rebalance, count=count)


def _ratio(drifted: int, fresh: int) -> str:
    return f"{drifted / fresh:.2f}" if fresh else f"{drifted} / 0"


def _median(times: list[Time]) -> Time:
    return Time(statistics.median(each.cpu for each in times), statistics.median(each.wall for each in times))


if __name__ == "__main__":
    for each in rows(*map(int, sys.argv[1:])):
        print(", ".join(f"{name}: {value}" for name, value in each.items()), flush=True)
