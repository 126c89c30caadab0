"""The time of an apply: every pin of ten guests by pinner, by bare libvirt calls, and by a shell loop of virsh.

Run ``python tests/benchmarks/apply.py`` as root. pinner does a complete apply: it checks that the plan is not stale,
writes the journal to disk, makes each pin, and reads it back from the kernel. The bare calls use one open connection
and guests looked up before; the shell loop starts one virsh for each pin. The guests are paused, so that they use no
CPU. All three methods run in turn, several times, and each run moves every thread; medians of wall time are compared.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import libvirt

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tools")]

# ruff: noqa: E402 - the modules below are found through the path above
import private_libvirt
from support.values import NOON, make_plan, make_run

from pinner.apply import executor
from pinner.host.libvirt import Libvirt
from pinner.host.live import ROOT, LiveHost
from pinner.model.change import AffinityChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan import Basis, Plan
from pinner.store.journal import Journal

GUESTS = 10
VCPUS = 4
ROUNDS = 11
WHERE = [CpuSet.of([cpu]) for cpu in sorted(os.sched_getaffinity(0))[:2]]
"""Each method moves every thread from one to the other."""

Method = Callable[[CpuSet], float]
"""Pins everything to these CPUs; returns the milliseconds that it took."""


@contextmanager
def guests() -> Iterator[tuple[str, list[Target]]]:
    """The URI of a private libvirtd with the guests, and every target of them that can be pinned."""
    with (
        tempfile.TemporaryDirectory(prefix="pinner-bench-", dir="/tmp") as folder,
        private_libvirt.private_libvirtd(Path(folder) / "d") as uri,
    ):
        for number in range(GUESTS):
            name = f"bench-{os.getpid()}-{number}"
            private_libvirt.start_guest(uri, private_libvirt.guest_xml(name, vcpus=VCPUS, memory_mib=32), paused=True)
        targets = []
        for guest in Libvirt(uri).guests(ROOT):
            targets.append(Target("emulator", guest.uuid, None, guest.name))
            targets += [Target("vcpu", guest.uuid, vcpu.id, guest.name) for vcpu in guest.vcpus]
            targets += [Target("iothread", guest.uuid, thread.id, guest.name) for thread in guest.iothreads]
        yield uri, targets


def ours(uri: str, targets: list[Target], folder: Path) -> Method:
    """The executor on the live host, with its journal on disk."""
    host, journal = LiveHost(Libvirt(uri)), Journal(folder)
    numbers = iter(range(1_000_000))

    def plan(cpus: CpuSet) -> Plan:
        changes = tuple(AffinityChange(target, host.masks(target), cpus, "a benchmark") for target in targets)
        return replace(make_plan(changes=changes), basis=Basis("s", NOON, host.fingerprint()))

    def method(cpus: CpuSet) -> float:
        new_plan = plan(cpus)
        run = make_run(f"run-{next(numbers)}")
        began = time.perf_counter()
        ended = executor.apply(new_plan, run, host, journal, lambda: NOON, lambda *_: None)
        took = time.perf_counter() - began
        assert ended.state == "applied"
        assert len(journal.entries(run.id)) == len(targets)
        return took * 1000

    return method


def bare(uri: str, targets: list[Target]) -> Method:
    """The same pins by calls of libvirt and nothing else."""
    connection = libvirt.open(uri)
    domains = {target.owner: connection.lookupByUUIDString(target.owner) for target in targets}
    live = libvirt.VIR_DOMAIN_AFFECT_LIVE

    def method(cpus: CpuSet) -> float:
        mask = tuple(cpu in cpus for cpu in range(max(cpus) + 1))
        began = time.perf_counter()
        for target in targets:
            domain = domains[target.owner]
            if target.kind == "emulator":
                domain.pinEmulator(mask, live)
            elif target.kind == "vcpu":
                domain.pinVcpuFlags(target.part, mask, live)
            else:
                domain.pinIOThread(target.part, mask, live)
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
        subprocess.run(["sh", "-ec", "\n".join(lines), "sh", str(cpus)], check=True, capture_output=True)
        return (time.perf_counter() - began) * 1000

    return method


def rows() -> list[dict[str, str]]:
    """One row with medians in milliseconds and their ratios; no row where no guest can run."""
    if why := private_libvirt.missing():
        print(f"apply is not measured: {why}", file=sys.stderr)
        return []
    with guests() as (uri, targets), tempfile.TemporaryDirectory(prefix="pinner-bench-") as folder:
        methods = [ours(uri, targets, Path(folder)), bare(uri, targets), shell(uri, targets)]
        for method in methods:
            method(WHERE[-1])
        # Three methods and two CPU sets: each method uses both sets equally often, and always moves the threads.
        runs = [[method(WHERE[(number + turn) % 2]) for turn, method in enumerate(methods)] for number in range(ROUNDS)]
    mine, calls, virsh = (statistics.median(column) for column in zip(*runs, strict=True))
    return [
        {
            "what": f"apply, {len(targets)} pins of {GUESTS} guests",
            "ours": f"{mine:.1f} ms",
            "floor": f"{calls:.1f} ms",
            "ours / floor": f"{mine / calls:.2f}",
            "virsh": f"{virsh:.1f} ms",
            "virsh / ours": f"{virsh / mine:.1f}",
        }
    ]


if __name__ == "__main__":
    for row in rows():
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
