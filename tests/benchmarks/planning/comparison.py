"""Placements of the same guests on the same hosts by pinner and its peers: their time, and their quality beside it.

Run ``python tests/benchmarks/planning/comparison.py``. Every contender gets the guests largest first, which suits all
of them, and the same CPUs. pinner's time is that of a whole plan with the strategy ``isolated``, from a snapshot that
is read anew each time, so that nothing computed for an earlier plan helps it; ``place`` is the strategy's part alone,
and ``pack`` the choice of a CPU for each vCPU alone, from the free cores of the pool. Nova fits and books each guest:
that is the choice of ``pack``, one guest after the other. The rules of cpumanager and titus-isolate are ports to
Python: compare their quality; their time is only that of these ports.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.peers import cpumanager, nova_peer, titus
from benchmarks.peers.generated import SIZES, Mix, Shape, guests, host, largest_first, sizes
from benchmarks.peers.nova_peer import Nova
from benchmarks.peers.quality import Judge, Places, Quality, places_of
from benchmarks.report.timing import Row, Time, clear_caches, in_turns, line, timed

from pinner import codec
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Topology
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator.free_cpus import FreeCpus
from pinner.planning.strategies.strategy import installed

HOSTS = (
    (Shape(64, 2, 4), 10),
    (Shape(128, 2, 8), 25),
    (Shape(256, 4, 8), 50),
    (Shape(512, 8, 8), 100),
    (Shape(1024, 8, 8), 400),
)
"""The hosts, and how many guests each has."""
FULL = 0.9
"""The part of the pool that the guests' vCPUs fill, as far as their number allows."""
SEEDS = (15, 16, 17, 18, 19)
"""Each seed draws other guests. The times are of the first, the counts of quality are the sum over all."""
REQUEST = Request("isolated")


@dataclass(frozen=True, slots=True)
class Case:
    """A host and its guests."""

    name: str
    hardware: Topology
    pool: CpuSet
    guests: Sequence[Guest]
    text: bytes
    """The snapshot as JSON."""

    @classmethod
    def of(cls, shape: Shape, count: int, mix: Mix, seed: int = SEEDS[0]) -> "Case":
        """The host of this shape with so many guests."""
        hardware, pool = shape.hardware
        placing = guests(sizes(count, int(FULL * len(pool)), mix, seed), hardware.online - pool)
        taken = host(hardware, placing, processes=len(placing))
        name = f"{shape.cpus} CPUs, {count} guests, {mix} sizes"
        return cls(name, hardware, pool, largest_first(placing), codec.dump(taken))

    def snapshot(self) -> Snapshot:
        """The snapshot, read anew and without the caches of an earlier plan."""
        clear_caches()
        return codec.load(Snapshot, self.text)


class Contender:
    """A way to place the guests of a case: a function that returns its time and its placement."""

    def __init__(self, call: Callable[[], tuple[Time, Places]]) -> None:
        self._call = call
        self.places: Places = {}

    def __call__(self) -> Time:
        took, self.places = self._call()
        return took


def ours(case: Case) -> Contender:
    """A whole plan."""

    def call() -> tuple[Time, Places]:
        took, made = timed(plan, case.snapshot(), "s", REQUEST)
        return took, places_of(made.wanted, case.guests)

    return Contender(call)


def place_alone(case: Case) -> Contender:
    """The strategy's part of a plan: from the context to the wanted CPUs."""
    strategy = installed()[REQUEST.strategy]

    def call() -> tuple[Time, Places]:
        took, answer = timed(strategy.place, Context.of(case.snapshot(), REQUEST))
        return took, places_of(answer.wanted, case.guests)

    return Contender(call)


def pack_alone(case: Case) -> Contender:
    """The choice of a CPU for each vCPU: from the guests and the free cores, which Nova gets as values, too."""

    def call() -> tuple[Time, Places]:
        context = Context.of(case.snapshot(), REQUEST)
        free = FreeCpus(context, context.allocatable.unbalanced)
        took, packed = timed(free.pack, context.guests)
        return took, {guest.name: packed.cpus.get(guest.uuid) for guest in case.guests}

    return Contender(call)


def novas(case: Case, nova: Nova) -> Contender:
    """Nova's fitting and booking."""

    def call() -> tuple[Time, Places]:
        fitted = nova.place(case.hardware, case.pool, case.guests)
        return Time(fitted.cpu_ms, fitted.wall_ms), fitted.places

    return Contender(call)


def port(case: Case, place: Callable[..., Places], **options: Any) -> Contender:
    """The rules of another project, in Python."""
    return Contender(lambda: timed(place, case.hardware, case.pool, case.guests, **options))


def contenders(case: Case, nova: Nova | None) -> dict[str, Contender]:
    """The plan, the placement alone, the choice of CPUs alone, and each peer."""
    methods = {"plan": ours(case), "place": place_alone(case), "pack": pack_alone(case)}
    if nova is not None:
        methods[f"Nova {nova.version}"] = novas(case, nova)
    methods["cpumanager's rules"] = port(case, cpumanager.place)
    methods["cpumanager's rules, caches aligned"] = port(case, cpumanager.place, align_caches=True)
    methods["titus-isolate's greedy rules"] = port(case, titus.place)
    return methods


def measured(cases: Sequence[Case], nova: Nova | None) -> Iterator[Row]:
    """The rows of one host: the plan beside each peer, then ``place`` and ``pack`` beside Nova. The times are of the
    first case, the qualities the sums of all."""
    first, *others = cases
    methods = contenders(first, nova)
    times = in_turns(methods)
    qualities = _qualities(first, methods)
    for case in others:
        again = contenders(case, nova)
        for method in again.values():
            method()
        qualities = {name: qualities[name] + found for name, found in _qualities(case, again).items()}
    for name in list(methods)[3:]:
        yield line(
            f"plan, {first.name}",
            times["plan"],
            qualities["plan"],
            peer=name,
            theirs=times[name],
            its_quality=qualities[name],
        )
    beside = next((name for name in methods if name.startswith("Nova")), "")
    for part in ("place", "pack"):
        yield line(f"{part}, {first.name}", times[part], peer=beside or nova_peer.HOW, theirs=times.get(beside))


def _qualities(case: Case, methods: Mapping[str, Contender]) -> dict[str, Quality]:
    judge = Judge(case.hardware, case.pool)
    return {name: judge.quality(method.places) for name, method in methods.items()}


def rows() -> Iterator[Row]:
    """The rows of every host, with guests of friendly sizes and of any size."""
    with contextlib.ExitStack() as stack:
        nova = None
        with contextlib.suppress(nova_peer.NovaMissing):
            nova = stack.enter_context(nova_peer.running())
        for shape, count in HOSTS:
            for mix in SIZES:
                yield from measured([Case.of(shape, count, mix, seed) for seed in SEEDS], nova)


if __name__ == "__main__":
    for row in rows():
        print(", ".join(f"{name}: {value}" for name, value in row.items()), flush=True)
