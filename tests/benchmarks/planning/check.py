"""The time of all checks on a made-up host with 512 CPUs, 50 guests, 10,000 threads and 2,000 interrupts.

Run ``python tests/benchmarks/planning/check.py``. The reading is read anew each time. What takes the two samples on a
real host is not part of the time.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.planning import plan as plan_benchmark
from benchmarks.report.timing import Row, Time, clear_caches, in_turns, line, timed
from support.hosts import applied, process, snapshot
from support.made_up.readings import SECONDS, Seen, irq

from pinner import codec
from pinner.model.plan.request import Request
from pinner.model.reading import HostReading, HostSample, ThreadTimes
from pinner.planning.planner import plan
from pinner.service.hosts.checker import HostChecker

IRQS = 2000
THREADS = 10_000
OF_A_PROCESS = 4
GUESTS = 50


def reading() -> HostReading:
    """A host whose guests are placed. Its interrupts go to all CPUs in turn, so that many checks find something."""
    made = plan_benchmark.host("shared-pool")
    guests = made.guests[:GUESTS]
    own = sum(len(threads) for guest in guests for threads in guest.threads_by_target.values())
    floor = str(made.topology.online)
    processes = [
        process(1_000_000 + 10 * n, 0.1, *[floor] * OF_A_PROCESS) for n in range((THREADS - own) // OF_A_PROCESS)
    ]
    taken = snapshot(made.topology, guests, processes)
    placed = applied(taken, plan(taken, "s", Request()))
    online = sorted(placed.topology.online)

    def seen(times: int) -> Seen:
        at = [online[n % len(online)] for n in range(IRQS)]
        irqs = tuple(irq(40 + n, str(cpu), {cpu: 1000 * times}) for n, cpu in enumerate(at))
        tids = [vcpu.thread.tid for guest in placed.guests for vcpu in guest.vcpus if vcpu.thread]
        return Seen(irqs, sample=HostSample(threads={tid: ThreadTimes(times * 10**9, times * 10**8) for tid in tids}))

    before, now = seen(1), seen(2)
    with_irqs = replace(placed, **now.settings(before))
    return HostReading(with_irqs, (before.counters, now.counters), SECONDS)


def rows() -> Iterator[Row]:
    """One row."""
    text = codec.dump(reading())
    found = HostChecker().check(codec.load(HostReading, text))
    assert {"irq-on-guest-cpus", "vcpu-run-delay"} <= {each.code for each in found.findings}

    def measured() -> Time:
        clear_caches()
        return timed(HostChecker().check, codec.load(HostReading, text))[0]

    what = f"all {found.checks} checks, 512 CPUs, {THREADS:,} threads, {IRQS:,} interrupts"
    yield line(what, in_turns({"checks": measured})["checks"])


if __name__ == "__main__":
    for row in rows():
        print(", ".join(f"{name}: {value}" for name, value in row.items()), flush=True)
