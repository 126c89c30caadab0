"""The time of an apply: every pin of many guests by pinner, by bare libvirt calls, and by a shell loop of virsh.

Run ``python tests/benchmarks/live/apply.py [GUESTS VCPUS]`` as root. pinner does a complete apply: it checks that the
plan is not stale, writes the journal to disk, makes each pin, and reads it back from the kernel. The bare calls use
open connections, as many as pinner uses, and guests looked up before; the shell loop starts one virsh for each pin. The
guests are paused, so that they use no CPU. All methods run in turn, several times, and each run moves every thread;
medians of wall time are compared. An apply that finds everything made already is timed too: its CPU time and wall time.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import libvirt

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3] / "tools")]

# ruff: noqa: E402 - the modules below are found through the path above
import private_libvirt
from support.values import NOON, make_plan, make_run

from pinner.apply import executor
from pinner.host.live import ROOT, LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import AffinityChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Basis
from pinner.store.journal.journal import StoredJournal

SHAPES = ((10, 4), (50, 18))
"""Guests, and the vCPUs of each. Each guest has an emulator and an iothread, too."""
ROUNDS = 11
WHERE = [CpuSet.of([cpu]) for cpu in sorted(os.sched_getaffinity(0))[:2]]
"""Each method moves every thread from one to the other."""

Method = Callable[[CpuSet], float]
"""Pins everything to these CPUs; returns the milliseconds that it took."""


@contextmanager
def guests(count: int, vcpus: int) -> Iterator[tuple[str, list[Target]]]:
    """The URI of a private libvirtd with the guests, and every target of them that can be pinned."""
    with (
        tempfile.TemporaryDirectory(prefix="pinner-bench-", dir="/tmp") as folder,
        private_libvirt.private_libvirtd(Path(folder) / "d") as uri,
    ):
        for number in range(count):
            name = f"bench-{os.getpid()}-{number}"
            private_libvirt.start_guest(uri, private_libvirt.guest_xml(name, vcpus=vcpus, memory_mib=32), paused=True)
        targets = []
        for guest in Libvirt(uri).guests(ROOT):
            targets.append(Target("emulator", guest.uuid, None, guest.name))
            targets += [Target("vcpu", guest.uuid, vcpu.id, guest.name) for vcpu in guest.vcpus]
            targets += [Target("iothread", guest.uuid, thread.id, guest.name) for thread in guest.iothreads]
        yield uri, targets


def ours(uri: str, targets: list[Target], folder: Path) -> Callable[[CpuSet], tuple[float, float]]:
    """The executor on the live host, with its journal on disk; it returns wall time and CPU time."""
    host, journal = LiveHost(Libvirt(uri)), StoredJournal(folder)
    numbers = iter(range(1_000_000))

    def method(cpus: CpuSet) -> tuple[float, float]:
        changes = tuple(AffinityChange(target, host.masks(target), cpus, "a benchmark") for target in targets)
        new_plan = replace(make_plan(changes=changes), basis=Basis("s", NOON, host.fingerprint()))
        run = make_run(f"run-{next(numbers)}")
        began, cpu = time.perf_counter(), time.process_time()
        ended = executor.apply(new_plan, run, host, journal, lambda: NOON, lambda *_: None)
        took = time.perf_counter() - began, time.process_time() - cpu
        assert ended.state == "applied", ended.error
        return took[0] * 1000, took[1] * 1000

    return method


def bare(uri: str, targets: list[Target]) -> Method:
    """The same pins by calls of libvirt and nothing else, over as many connections as pinner uses."""
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE
    connections = [libvirt.open(uri) for _ in range(LiveHost.guests_at_once)]
    guests = list(dict.fromkeys(target.owner for target in targets))
    mine = [
        [
            (connection.lookupByUUIDString(guest), [target for target in targets if target.owner == guest])
            for guest in guests[number :: len(connections)]
        ]
        for number, connection in enumerate(connections)
    ]
    workers = ThreadPoolExecutor(len(connections))

    def pin_all(part: list[tuple[libvirt.virDomain, list[Target]]], mask: tuple[bool, ...]) -> None:
        for domain, wanted in part:
            for target in wanted:
                if target.kind == "emulator":
                    domain.pinEmulator(mask, live)
                elif target.kind == "vcpu":
                    domain.pinVcpuFlags(target.part, mask, live)
                else:
                    domain.pinIOThread(target.part, mask, live)

    def method(cpus: CpuSet) -> float:
        mask = tuple(cpu in cpus for cpu in range(max(cpus) + 1))
        began = time.perf_counter()
        list(workers.map(lambda part: pin_all(part, mask), mine))
        return (time.perf_counter() - began) * 1000

    return method


def shell(uri: str, targets: list[Target]) -> Method:
    """The same pins by a shell script, as an administrator would write it."""
    commands = {"emulator": "emulatorpin", "vcpu": "vcpupin", "iothread": "iothreadpin"}
    lines = [
        f"virsh -q -c '{uri}' {commands[target.kind]} {target.owner}"
        f"{'' if target.part is None else f' {target.part}'} $1 --live"
        for target in targets
    ]

    def method(cpus: CpuSet) -> float:
        began = time.perf_counter()
        subprocess.run(["sh", "-es", str(cpus)], input="\n".join(lines).encode(), check=True, capture_output=True)
        return (time.perf_counter() - began) * 1000

    return method


def rows(shapes: Sequence[tuple[int, int]] = SHAPES) -> list[dict[str, str]]:
    """Two rows for each shape with medians in milliseconds and their ratios; no row where no guest can run."""
    if why := private_libvirt.missing():
        print(f"apply is not measured: {why}", file=sys.stderr)
        return []
    return [row for shape in shapes for row in _rows(*shape)]


def _rows(count: int, vcpus: int) -> Iterator[dict[str, str]]:
    with guests(count, vcpus) as (uri, targets), tempfile.TemporaryDirectory(prefix="pinner-bench-") as folder:
        mine, floor, virsh = ours(uri, targets, Path(folder)), bare(uri, targets), shell(uri, targets)
        few = len(targets) < 100
        mine(WHERE[1])
        # Each method finds what the other one has pinned, and moves every thread to the other CPU.
        fast = [(*mine(WHERE[0]), floor(WHERE[1])) for _ in range(ROUNDS)]
        slow = [virsh(WHERE[number % 2]) for number in range(ROUNDS if few else 1)]
        mine(WHERE[0])
        nothing = [mine(WHERE[0]) for _ in range(ROUNDS)]
    wall, cpu, least, virshes = (statistics.median(column) for column in (*zip(*fast, strict=True), slow))
    yield {
        "what": f"apply, {len(targets):,} pins of {count} guests",
        "ours": f"{wall:.1f} ms (CPU {cpu:.1f})",
        "floor": f"{least:.1f} ms",
        "ours / floor": f"{wall / least:.2f}",
        "virsh": f"{virshes:.1f} ms",
        "virsh / ours": f"{virshes / wall:.1f}",
    }
    wall, cpu = (statistics.median(column) for column in zip(*nothing, strict=True))
    yield {"what": f"the same, nothing to change ({len(targets):,} pins)", "ours": f"{wall:.1f} ms (CPU {cpu:.1f})"}


if __name__ == "__main__":
    wanted = [tuple(map(int, sys.argv[1:3]))] if len(sys.argv) > 2 else SHAPES
    for row in rows(wanted):
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
