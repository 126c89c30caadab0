"""The time of a plan for a host of 512 CPUs, 8 nodes and 100 guests, per strategy, compared with Nova's placement.

Run ``python tests/benchmarks/planning/plan.py``. Nova fits one guest per call (``numa_fit_instance_to_host``, with
pinned vCPUs) and books it (``numa_usage_from_instance_numa``), so that the next call knows the CPUs in use. Its figure
is the sum of both calls over the same guests, on the CPUs that a plan of pinner gives to vCPUs. A plan of pinner does
more: it includes processes, emulators, the difference to the current state, the rules and the score.
"""

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.peers import nova_peer
from benchmarks.report.timing import clear_caches
from support.hosts import GIB, cpus, guest, interleaved, process, snapshot

from pinner import codec
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.planner import plan

REPETITIONS = 15
NODES = 8
CORES = 256
SIZES = (2, 4, 4, 4)
"""vCPUs of the guests, in turn."""
GUESTS = 100


def host(strategy: str) -> Snapshot:
    """The host as read from a file, so that no two threads share one affinity object."""
    memory = 512 * GIB
    top = interleaved(CORES, NODES, memory_kib=memory)
    if strategy == "isolated":
        pool = str(plan(snapshot(top), "s", Request()).roles.vcpu)
        top = interleaved(CORES, NODES, memory_kib=memory, isolated=pool, nohz_full=pool)
    floor = top.online - top.isolated
    guests = [
        guest(n, SIZES[n % len(SIZES)], floor, memory={n % NODES: 2 * GIB}, iothreads=1, vhost_threads=1)
        for n in range(GUESTS)
    ]
    processes = [process(1_000_000 + 10 * n, 5.0 if n < 20 else 0.1, *[str(floor)] * 4) for n in range(300)]
    pmd = process(2_000_000, 100.0, str(floor), str(cpus("0")), reasons=["", "restricted"])
    return codec.load(Snapshot, codec.dump(snapshot(top, guests, [*processes, pmd])))


def ours(strategy: str) -> Callable[[], float]:
    """A function that measures the milliseconds of a plan for a host without any placement.

    The caches are cleared and the snapshot is read anew each time, so that nothing computed for an earlier plan helps
    the next one.
    """
    before, request = host(strategy), Request(strategy)
    text = codec.dump(before)
    first = plan(before, "s", request)
    assert first.changes
    assert not first.unplaced
    assert not first.blocked

    def measured() -> float:
        clear_caches()
        return timed(plan, codec.load(Snapshot, text), "s", request)[0]

    return measured


def timed(call: Callable[..., Any], *arguments: object, **more: object) -> tuple[float, Any]:
    """The milliseconds of CPU time of one call, and its result."""
    began = time.process_time()
    answer = call(*arguments, **more)
    return (time.process_time() - began) * 1000, answer


@contextlib.contextmanager
def novas() -> Iterator[Callable[[], float]]:
    """A function that measures the milliseconds in which Nova fits and books the same guests. Raises NovaMissing."""
    before = host("isolated")
    guests = sorted(before.guests, key=lambda each: -len(each.vcpus))

    def place_all() -> float:
        fitted = nova.place(before.topology, before.topology.isolated, guests)
        assert None not in fitted.places.values()
        return fitted.cpu_ms

    with nova_peer.running() as nova:
        yield place_all


def rows() -> list[dict[str, str]]:
    """One row for each strategy: medians in milliseconds and their ratios."""
    methods = {strategy: ours(strategy) for strategy in ("shared-pool", "numa-local", "isolated")}
    with contextlib.ExitStack() as stack:
        missing = ""
        try:
            methods["nova"] = stack.enter_context(novas())
        except nova_peer.NovaMissing as error:
            missing = str(error)
        runs = [[method() for method in methods.values()] for _ in range(REPETITIONS)]
    medians = dict(zip(methods, map(statistics.median, zip(*runs, strict=True)), strict=True))
    nova = medians.pop("nova", None)
    table = []
    for strategy, mine in medians.items():
        row = {"what": f"plan, {strategy}, {2 * CORES} CPUs, {GUESTS} guests", "ours": f"{mine:.1f} ms"}
        row |= {"nova": missing} if nova is None else {"nova": f"{nova:.1f} ms", "nova / ours": f"{nova / mine:.2f}"}
        table.append(row)
    return table


if __name__ == "__main__":
    for row in rows():
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
