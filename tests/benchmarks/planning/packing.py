"""Packs guests on generated hosts by rules, by exchanges and with the solver: the CPU time, and how near each is to the
optimum.

Run ``python tests/benchmarks/planning/packing.py``. The hosts are those of support/made_up/generated_hosts.py, with
guests of friendly sizes (2, 4, 8, 16) and of any size from 2 to 16. They and their packings are the same in every run;
times are not.

Where guests have memory on a node, the nodes are not alike. Then a full search may take the solver many seconds, and it
is not asked.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.report.timing import Row
from support.made_up.generated_hosts import GeneratedHost, generated, with_homes

from pinner.planning.packing import program
from pinner.planning.packing.exchange import exchanged
from pinner.planning.packing.heuristic import Packing, pack
from pinner.planning.packing.optimal import improved
from pinner.planning.packing.values import Score

HOSTS = 100
"""Hosts of each kind."""
HOMES = 0.5
"""The share of the guests with memory on a node, where nodes are not alike."""
LARGE = 512
"""CPUs of the largest hosts."""


@dataclass(frozen=True, slots=True)
class Result:
    """One host, packed twice, with the milliseconds of CPU time of each."""

    host: GeneratedHost
    rules: Packing
    better: Packing
    """By exchanges."""
    best: Packing
    rules_ms: float
    better_ms: float
    """0 where the rules are at the bound."""
    solver_ms: float
    """0 where the exchanges are at the bound, so that the solver is not asked."""


def measured(host: GeneratedHost, *, solve: bool = True) -> Result:
    """Pack the guests of a host."""
    began = time.process_time()
    rules = pack(host.nodes, host.guests)
    packed = time.process_time()
    better = rules if rules.proven else exchanged(host.nodes, host.guests, rules)
    moved = time.process_time()
    best = improved(host.nodes, host.guests, better, solve=program.installed()) if solve else better
    ended = time.process_time()
    return Result(
        host,
        rules,
        better,
        best,
        rules_ms=1000 * (packed - began),
        better_ms=0 if rules.proven else 1000 * (moved - packed),
        solver_ms=0 if better.proven or not solve else 1000 * (ended - moved),
    )


def of_kind(name: str, results: Sequence[Result]) -> Iterator[Row]:
    """The rows of hosts with guests of one kind: the rules, exchanges where these are above the bound, the solver where
    these are too, and that on large hosts. The solver has no rows where it is asked for no host."""
    moved = [result for result in results if result.better_ms]
    asked = [result for result in results if result.solver_ms]
    large = [result for result in asked if result.host.cpus == LARGE]
    for what, some, time_of, packing_of in (
        ("by rules", results, lambda each: each.rules_ms, lambda each: each.rules),
        ("by exchanges, where rules are above the bound", moved, lambda each: each.better_ms, lambda each: each.better),
        (
            "by the solver, where exchanges are above the bound",
            asked,
            lambda each: each.solver_ms,
            lambda each: each.best,
        ),
        (f"the same, {LARGE} CPUs", large, lambda each: each.solver_ms, lambda each: each.best),
    ):
        if some or what == "by rules":
            yield _row(f"packing {what}, {len(some)} hosts, {name}", some, time_of, packing_of)


def _row(
    what: str, results: Sequence[Result], time_of: Callable[[Result], float], packing_of: Callable[[Result], Packing]
) -> Row:
    times = [time_of(result) for result in results]
    packings = [packing_of(result) for result in results]
    bounds = [result.best.bound for result in results]
    left_out = sum(
        1 for packing, bound in zip(packings, bounds, strict=True) if packing.score.unplaced > bound.unplaced
    )
    return {
        "what": what,
        "ours": f"{median(times):.1f} ms, at worst {max(times):.1f} ms",
        "quality": _sums([packing.score for packing in packings]),
        "peer": "bound",
        "their quality": _sums(bounds),
        "proven": f"{sum(1 for packing in packings if packing.proven)} of {len(packings)}",
        "largest gap": f"{max(packing.gap for packing in packings):.0%}",
        "hosts with more unplaced guests than the bound": str(left_out),
    }


def _sums(scores: Sequence[Score]) -> str:
    names = {"L3 +": "extra_l3", "shared cores ": "shared", "farther nodes ": "rank", "unplaced ": "unplaced"}
    return ", ".join(f"{text}{sum(getattr(score, name) for score in scores)}" for text, name in names.items())


def rows(hosts: int = HOSTS) -> Iterator[Row]:
    """The rows of hosts with guests of friendly sizes and of any size."""
    measured(generated(17, friendly=False))  # the first call imports the solver
    for name, friendly in (("friendly", True), ("any", False)):
        every = [generated(seed, friendly=friendly) for seed in range(hosts)]
        yield from of_kind(f"{name} sizes", [measured(host) for host in every])
        near = [measured(with_homes(host, HOMES), solve=False) for host in every]
        yield from of_kind(f"{name} sizes, half of the guests with memory on a node", near)


if __name__ == "__main__":
    for row in rows():
        print(", ".join(f"{name}: {value}" for name, value in row.items()), flush=True)
