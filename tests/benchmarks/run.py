"""Every benchmark, as one Markdown table with the machine named: `make bench`."""

import argparse
import importlib
import os
import platform
import sys
from datetime import date
from pathlib import Path

BENCHMARKS = (
    "scan",
    "plan",
    "comparison",
    "serialisation",
    "years",
    "apply",
    "reconcile_latency",
    "spawn",
    "watch",
    "load",
)


def machine() -> str:
    """The machine of the measurements: CPUs, kernel and Python."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} CPUs ({model}), Linux {platform.release()}, Python {platform.python_version()}"


def main() -> None:
    """Run the wanted benchmarks and print their table."""
    parser = argparse.ArgumentParser(description="Measure, and print one Markdown table. All of it takes some minutes.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)} (default: all)")
    names = parser.parse_args().names or BENCHMARKS
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"unknown benchmark {unknown[0]}; choose from {', '.join(BENCHMARKS)}")
    sys.path.insert(0, str(Path(__file__).parents[1]))
    table = []
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        table += importlib.import_module(name).rows()
    columns = list(dict.fromkeys(column for row in table for column in row))
    print(f"{machine()}, {date.today()}\n")
    print(f"| {' | '.join(columns)} |")
    print(f"|{'---|' * len(columns)}")
    for row in table:
        print(f"| {' | '.join(row.get(column, '') for column in columns)} |")


if __name__ == "__main__":
    main()
