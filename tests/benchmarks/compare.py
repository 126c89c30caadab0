"""What became slower since a revision: `make bench-compare REV=main`.

The benchmarks of this tree measure pinner of the revision (a worktree of git) and of this tree in turns. A row counts
as slower or faster only if the medians differ by more than half the sum of both spreads (largest minus smallest round),
and by more than 3 %. Nova is left out: it is no part of either tree.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import run
from benchmarks.report import history
from benchmarks.report.bounded import end_on_sigterm, measure
from benchmarks.report.table import counts, figure, markdown
from benchmarks.report.timing import Row

NAMES = ("plan", "serialisation", "comparison")
"""The benchmarks that are compared unless others are named: they need no right and no guest."""
LEAST = 0.03
"""The smallest change that counts."""

Rounds = Mapping[str, Sequence[Row]]
"""The rows of all rounds, by the text of ``what``."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure before and now."""

    what: str
    before: float
    now: float
    unit: str
    margin: float
    """The part of the earlier figure within which a difference is noise."""

    @property
    def part(self) -> float:
        """The change as a part of the earlier figure; above 0 is slower."""
        change = self.now / self.before - 1 if self.before else 0.0
        return -change if self.unit.startswith("/s") else change

    @property
    def verdict(self) -> str:
        """slower, faster, or within the noise."""
        if abs(self.part) <= self.margin:
            return "within the noise"
        return "slower" if self.part > 0 else "faster"


def change(what: str, before: Sequence[float], now: Sequence[float], unit: str) -> Change:
    """The change between the figures of several rounds each."""
    first, second = statistics.median(before), statistics.median(now)
    spread = (max(before) - min(before) + max(now) - min(now)) / 2
    return Change(what, first, second, unit, max(LEAST, spread / first if first else 0.0))


def changes(before: Rounds, now: Rounds) -> Iterator[Change]:
    """The change of each row that both have, as far as it has a figure."""
    for what in before:
        if what in now:
            first, second = ([figure(row["ours"]) for row in rows[what]] for rows in (before, now))
            if all(first) and all(second):
                earlier, later = ([found[0] for found in each if found] for each in (first, second))
                yield change(what, earlier, later, first[0][1] if first[0] else "")


def qualities(before: Rounds, now: Rounds) -> Iterator[Row]:
    """A row for each placement whose quality differs."""
    for what in before:
        if what in now:
            first, second = before[what][0].get("quality", ""), now[what][0].get("quality", "")
            if first != second:
                worse = any(later > earlier for earlier, later in zip(counts(first), counts(second), strict=False))
                yield {"what": what, "ours": second, "more": f"{'worse' if worse else 'better'}; before: {first}"}


def as_row(found: Change) -> Row:
    """A change as a row of the table."""
    return {
        "what": found.what,
        "ours": f"{found.now:.2f} {found.unit}",
        "peer": "before",
        "theirs": f"{found.before:.2f} {found.unit}",
        "more": f"{found.part:+.0%} (noise {found.margin:.0%}): {found.verdict}",
    }


@contextlib.contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """The files of a revision, with the entry points of its setup.cfg. Raises LookupError for an unknown revision."""
    if not (commit := history.git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")):
        raise LookupError(f"REV={revision} is no revision of this repository")
    with tempfile.TemporaryDirectory(prefix="pinner-bench-") as folder:
        tree = Path(folder) / "tree"
        history.git("worktree", "add", "--detach", str(tree), commit)
        try:
            # Strategies are found by entry points: without these, those of the installed tree would be loaded.
            metadata = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "egg_info"]
            subprocess.run(metadata, cwd=tree, check=True, capture_output=True)
            yield tree
        finally:
            history.git("worktree", "remove", "--force", str(tree))


def measured(names: Sequence[str], trees: Sequence[Path], rounds: int, bound: float) -> list[dict[str, list[Row]]]:
    """The rows of each tree. The trees take turns, and the first of a round is the last of the next."""
    found: list[dict[str, list[Row]]] = [defaultdict(list) for _ in trees]
    order = list(range(len(trees)))
    for number in range(rounds):
        for name in names:
            for tree in order:
                print(f"round {number + 1} of {rounds}: {name} of {trees[tree]} ...", file=sys.stderr, flush=True)
                environment = {"PYTHONPATH": str(trees[tree]), "PINNER_NOVA_PYTHON": "/bin/false"}
                outcome = measure(name, bound, environment)
                if outcome.problem:
                    print(f"  {outcome.problem}", file=sys.stderr, flush=True)
                for what, row in {row["what"]: row for row in reversed(outcome.rows)}.items():
                    found[tree][what].append(row)
        order.reverse()
    return found


def main() -> int:
    """Compare, print what changed, and return 1 if something became slower or worse."""
    made = argparse.ArgumentParser(description="Report what became slower since a revision. Exit status 1: something.")
    made.add_argument("revision", help="a branch, tag or commit")
    made.add_argument("names", nargs="*", metavar="NAME", help=f"benchmarks (default: {', '.join(NAMES)})")
    made.add_argument("--rounds", type=int, default=5, help="measurements of each tree, at least 3 (default: 5)")
    made.add_argument("--bound", type=float, default=run.BOUND, metavar="SECONDS", help="for each benchmark of a round")
    arguments = made.parse_args()
    names = run.known(made, arguments.names or list(NAMES))
    if arguments.rounds < 3:
        made.error(f"--rounds {arguments.rounds}: a spread needs at least 3 rounds")
    end_on_sigterm()
    try:
        with worktree(arguments.revision) as tree:
            before, now = measured(names, (tree, history.ROOT), arguments.rounds, arguments.bound)
    except LookupError as error:
        made.error(str(error))
    found = list(changes(before, now))
    other = list(qualities(before, now))
    slower = [each for each in found if each.verdict == "slower"]
    print(f"{history.machine_text()}; before: {arguments.revision}; {arguments.rounds} rounds in turns\n")
    print(markdown([*map(as_row, sorted(found, key=lambda each: -each.part)), *other]))
    absent = sorted(set(before) ^ set(now))
    print(f"\n{len(slower)} of {len(found)} rows became slower, {len(other)} placements differ in quality.")
    if absent:
        print(f"Measured in only one of both: {'; '.join(absent)}.")
    return 1 if slower or any(row["more"].startswith("worse") for row in other) else 0


if __name__ == "__main__":
    sys.exit(main())
