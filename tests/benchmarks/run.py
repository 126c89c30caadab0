"""Every benchmark, as one Markdown table with the machine named: `make bench`."""

import argparse
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.report import history
from benchmarks.report.bounded import end_on_sigterm, measure
from benchmarks.report.table import markdown
from benchmarks.report.timing import Row

BENCHMARKS = {
    "scan": "live",
    "plan": "planning",
    "comparison": "planning",
    "packing": "planning",
    "churn": "planning",
    "serialisation": "planning",
    "check": "planning",
    "years": "live",
    "apply": "live",
    "reconcile_latency": "live",
    "spawn": "live",
    "watch": "live",
    "load": "live",
}
"""The room of each benchmark, in the order of their runs."""
BOUND = 900.0
"""Seconds for one benchmark, unless it has a bound of its own."""
BOUNDS = {"churn": 1800.0, "reconcile_latency": 330.0}
"""The reconcile latency has two subjects of at most two minutes each, and the start of the server."""


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(
        description="Measure, and print one Markdown table. All of it takes about ten minutes on an idle machine.",
        epilog="A benchmark that does not end within its bound is ended; the table has the rows that it measured.",
    )
    made.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)} (default: all)")
    made.add_argument(
        "--bound", type=float, metavar="SECONDS", help=f"the bound of each benchmark (default: {BOUND:g})"
    )
    made.add_argument("--history", type=Path, default=history.HISTORY, metavar="FILE", help="default: %(default)s")
    return made


def known(made: argparse.ArgumentParser, names: list[str]) -> tuple[str, ...]:
    """The benchmarks of these names, or all. Ends the program with a message for an unknown name."""
    if unknown := [name for name in names if name not in BENCHMARKS]:
        made.error(f"unknown benchmark {unknown[0]}; choose from {', '.join(BENCHMARKS)}")
    return tuple(names or BENCHMARKS)


def main() -> None:
    """Run the wanted benchmarks, print their table and add it to the history."""
    made = parser()
    arguments = made.parse_args()
    end_on_sigterm()
    rows: list[Row] = []
    load = os.getloadavg()
    for name in known(made, arguments.names):
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        found = measure(name, arguments.bound or BOUNDS.get(name, BOUND))
        rows += found.rows
        if found.problem:
            rows.append({"what": name, "ours": found.problem})
    print(f"{history.machine_text()}, {datetime.now(UTC).date()}, load {load[0]:.1f} when it began\n")
    print(markdown(rows))
    history.append(arguments.history, load, rows)


if __name__ == "__main__":
    main()
