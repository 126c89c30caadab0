"""Packs guests on generated hosts by rules and with the solver, and prints how near each is to the proven optimum.

python -m pip install 'pinner[optimal]' first. The hosts are those of support/generated_hosts.py: half of them friendly
(sizes 2, 4, 8, 16), half of any size from 2 to 16. HOSTS sets their number (200). The hosts of the benchmark and their
packings are the same in every run; times are not. They are CPU time.
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.generated_hosts import GeneratedHost, generated

from pinner.planning.packing import solver
from pinner.planning.packing.heuristic import Packing, pack
from pinner.planning.packing.optimal import improved


@dataclass(frozen=True)
class Result:
    """One host, packed twice, with the milliseconds of CPU time of each."""

    host: GeneratedHost
    rules: Packing
    best: Packing
    rules_ms: float
    solver_ms: float
    """0 where the rules are at the bound, so that the solver is not asked."""


def measured(host: GeneratedHost) -> Result:
    """Pack the guests of a host."""
    began = time.process_time()
    rules = pack(host.nodes, host.guests)
    packed = time.process_time()
    best = improved(host.nodes, host.guests, rules, solve=solver.installed())
    ended = time.process_time()
    return Result(host, rules, best, 1000 * (packed - began), 0 if rules.proven else 1000 * (ended - packed))


def table(results: list[Result]) -> list[tuple[str, str, str]]:
    """The rows: what, of the friendly hosts, of the others."""
    kinds = [[each for each in results if each.host.friendly is friendly] for friendly in (True, False)]
    rows = [
        ("hosts", *(str(len(kind)) for kind in kinds)),
        ("with unplaced guests that fit, rules", *(_count(kind, lambda r: _left_out(r, r.rules)) for kind in kinds)),
        ("with unplaced guests that fit, solver", *(_count(kind, lambda r: _left_out(r, r.best)) for kind in kinds)),
        ("at the arithmetic bound by rules", *(_count(kind, lambda r: r.rules.proven) for kind in kinds)),
        ("proven", *(_count(kind, lambda r: r.best.proven) for kind in kinds)),
        ("largest gap of the others", *(f"{max(r.best.gap for r in kind):.0%}" for kind in kinds)),
    ]
    for term in ("extra_l3", "shared"):
        for name, side in (("rules", "rules"), ("solver", "best")):
            sums = (sum(getattr(getattr(r, side).score, term) for r in kind) for kind in kinds)
            rows.append((f"{term}, {name}", *map(str, sums)))
        rows.append((f"{term}, bound", *(str(sum(getattr(r.best.bound, term) for r in kind)) for kind in kinds)))
    times = (
        [[r.rules_ms for r in kind] for kind in kinds],
        [[r.solver_ms for r in kind if r.solver_ms] for kind in kinds],
    )
    for name, found in zip(("rules", "solver, where it is asked"), times, strict=True):
        rows.append((f"CPU ms, {name}: median / worst", *(_times(each) for each in found)))
    large = [[r.solver_ms for r in kind if r.solver_ms and r.host.cpus == 512] for kind in kinds]
    rows.append(("CPU ms, solver at 512 CPUs: median / worst", *(_times(each) for each in large)))
    return rows


def _left_out(result: Result, packing: Packing) -> bool:
    return packing.score.unplaced > result.best.bound.unplaced


def _count(results: list[Result], is_so) -> str:
    return str(sum(1 for result in results if is_so(result)))


def _times(found: list[float]) -> str:
    return f"{median(found):.1f} / {max(found):.1f}" if found else "-"


def main() -> None:
    """Print the table."""
    number = int(os.environ.get("HOSTS", "200")) // 2
    hosts = [generated(seed, friendly=friendly) for friendly in (True, False) for seed in range(number)]
    # The first call imports the solver.
    measured(generated(17, friendly=False))
    for what, friendly, others in (("", "friendly", "any size"), *table([measured(host) for host in hosts])):
        print(f"{what:42} {friendly:>16} {others:>16}")


if __name__ == "__main__":
    main()
