"""The cost of an enforced policy while nothing happens: `pinner serve` on a host with many processes and guests.

Run ``python tests/benchmarks/watch.py [SECONDS]`` as root. The CPU time is the user and system time of the server's
processes over that time, including resyncs. The memory is their PSS: a page that two processes share counts half for
each.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tools")]

# ruff: noqa: E402 - the modules below are found through the path above
import private_libvirt
import psutil
from reconcile_latency import host

GUESTS = 20
PROCESSES = 300
SECONDS = 60.0
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


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    for row in rows(*map(float, sys.argv[1:])):
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
