"""Runs one benchmark and writes each row to a file as soon as it is measured: ``measure.py NAME FILE``."""

import importlib
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.report.bounded import end_on_sigterm
from benchmarks.run import BENCHMARKS


def main(name: str, file: str) -> None:
    """Measure."""
    end_on_sigterm()
    with Path(file).open("a") as rows:
        for row in importlib.import_module(f"benchmarks.{BENCHMARKS[name]}.{name}").rows():
            print(json.dumps(row), file=rows, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
