"""A benchmark in a process of its own, which is ended after a bound and keeps the rows that it has measured."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report.timing import Row

MEASURE = Path(__file__).parents[1] / "measure.py"
GRACE = 30.0
"""Seconds in which a benchmark that is ended may end what it has started."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The rows of a benchmark."""

    rows: tuple[Row, ...]
    problem: str = ""
    """Why there may be more rows: the benchmark was ended or failed; else empty."""


def measure(
    name: str, bound: float, environment: Mapping[str, str] | None = None, script: Path = MEASURE, grace: float = GRACE
) -> Measured:
    """Run the benchmark of this name for at most ``bound`` seconds, with these environment variables as well."""
    with tempfile.TemporaryDirectory(prefix="pinner-bench-") as folder:
        file, problem = Path(folder) / "rows", ""
        command = [sys.executable, str(script), name, str(file)]
        # A SIGTERM waits until the process is known: else nobody would end it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        process = subprocess.Popen(
            command, start_new_session=True, env={**os.environ, **(environment or {})}, preexec_fn=_receive_sigterm
        )
        try:
            _receive_sigterm()
            if status := process.wait(bound):
                problem = f"failed with status {status}"
        except subprocess.TimeoutExpired:
            problem = f"ended after {bound:g} s, because it had not ended by itself"
        finally:
            _end(process, grace)
        text = file.read_text() if file.exists() else ""
    # A process that is killed while it writes leaves half a line.
    return Measured(tuple(json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")), problem)


def end_on_sigterm() -> None:
    """Let a SIGTERM end this process as an exception does, so that what it has started ends too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _receive_sigterm() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _end(process: "subprocess.Popen[bytes]", grace: float) -> None:
    """End the process if it still runs: it may end what it has started, or else its whole group is killed."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
