"""The cost of an enforced policy while nothing happens: `pinner serve` on a host with many processes and guests.

Run ``python tests/benchmarks/live/watch.py [SECONDS]`` as root. The CPU time is the user and system time of the
server's processes over that time, including resyncs. The memory is their PSS: a page that two processes share counts
half for each. Other processes that start and end on the machine cost the agent time, too: it hears of each. So the cost
of the history alone is measured in this process.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3] / "tools")]

# ruff: noqa: E402 - the modules below are found through the path above
import private_libvirt
import psutil
from benchmarks.live.reconcile_latency import host

from pinner.agent.recorder import SECONDS as STEP
from pinner.agent.recorder import Recorder
from pinner.host.measure.meter import HostMeter
from pinner.host.virt.libvirt import Libvirt
from pinner.model.outcome.measures import HOST, Measured, series_of
from pinner.store.history import HistoryFiles

GUESTS = 20
PROCESSES = 300
SECONDS = 60.0
COUNTS = 60
MONTH, STRIDE = timedelta(days=31), timedelta(seconds=15)
"""The simulated month has a value every 15 s: the longest distance at which the history takes values for known."""
MIB = 1 << 20


@contextlib.contextmanager
def crowd(uri: str) -> Iterator[list[str]]:
    """Starts paused guests and sleeping processes; the names of the guests."""
    names = [f"bench-{os.getpid()}-{number}" for number in range(GUESTS)]
    sleepers = [subprocess.Popen(["sleep", "infinity"]) for _ in range(PROCESSES)]
    try:
        for name in names:
            private_libvirt.start_guest(uri, private_libvirt.guest_xml(name, vcpus=2, memory_mib=16), paused=True)
        yield names
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def rows(seconds: float = SECONDS) -> Iterator[dict[str, str]]:
    """A row for each of the server's two processes; no rows where no guest can run."""
    if why := private_libvirt.missing():
        print(f"watching is not measured: {why}", file=sys.stderr)
        return
    with host() as (server, uri, _), crowd(uri) as names:
        server.policy("enforce", names)
        server.wait_reconciled()
        parts = dict(zip(("agent", "API and policy"), map(psutil.Process, server.pids()), strict=True))
        before = {what: _used(process) for what, process in parts.items()}
        time.sleep(seconds)
        for what, process in parts.items():
            yield {
                "what": f"watching {PROCESSES} processes and {GUESTS} guests, {what}, {seconds:.0f} s",
                "ours": f"{100 * (_used(process) - before[what]) / seconds:.2f} % of one CPU, "
                f"{process.memory_full_info().pss / MIB:.0f} MiB (PSS)",
            }
        yield history_cost(uri)
    yield history_size()


class Clock:
    """The times of counts that follow each other without a pause."""

    def __init__(self) -> None:
        self.at = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.at

    def seconds(self) -> float:
        """As of a clock that never jumps."""
        return self.at.timestamp()


def history_cost(uri: str) -> dict[str, str]:
    """The CPU time of counting the guests and keeping the values, including the questions to libvirt."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        meter = HostMeter(Path("/"), Libvirt(uri, 10.0), clock.seconds)
        recorder = Recorder(meter, HistoryFiles(Path(folder)), clock)
        recorder.record()
        before = time.process_time()
        for _ in range(COUNTS):
            clock.at += timedelta(seconds=STEP)
            recorder.record()
        used = (time.process_time() - before) / COUNTS
    return {
        "what": f"measures of {GUESTS} guests, counted and kept every {STEP} s",
        "ours": f"{100 * used / STEP:.2f} % of one CPU ({1000 * used:.1f} ms each)",
    }


def history_size() -> dict[str, str]:
    """The size of the files of a host and its guests. A month of values is written for the host and one guest."""
    guests = [f"{number:08d}-0000-4000-8000-000000000001" for number in range(GUESTS)]
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), datetime.now(UTC)
        kept, end = HistoryFiles(folder), now + MONTH
        kept.write([Measured(each, "", {}) for each in (HOST, *guests)], now)
        values = [
            Measured(each, "", {series.name: 1.0 for series in series_of(each) if "ping" not in series.name})
            for each in (HOST, guests[0])
        ]
        while now < end:
            now += STRIDE
            kept.write(values, now)
        size = sum(file.stat().st_size for file in folder.iterdir())
        oldest = kept.read(guests[0], now - MONTH, now, 900).values["use_vcpu"]
    known = sum(value is not None for value in oldest)
    return {
        "what": f"history of a host with {GUESTS} guests after a simulated month",
        "ours": f"{size / MIB:.1f} MiB, {known} of {len(oldest)} quarters of an hour known",
    }


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    for row in rows(*map(float, sys.argv[1:])):
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
