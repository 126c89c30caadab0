"""What lab tests do on a lab host: start guests and daemons, call pinner, and ask the kernel."""

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from lab.agent import Result
from lab.host import LabHost
from private_libvirt import guest_xml

from pinner.model.audit import Caller
from pinner.model.change import AffinityChange
from pinner.model.cpuset import CpuSet
from pinner.model.errors import HostUnreachable
from pinner.model.journal import Run
from pinner.model.plan import Plan
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.service.remote import RemoteService

GUESTS = {"alpha": 4, "beta": 2, "gamma": 1}
"""Name to vCPUs."""
_IMAGE = "/var/lib/libvirt/images/boot.img"
STOPPED = bytes.fromhex("faf4ebfd").ljust(510, b"\0") + b"\x55\xaa"
"""A boot sector that halts for good: emulated emulation is slow, and a guest need not work to be pinned."""

BUSY = """\
import threading, time
def work():
    while True:
        until = time.monotonic() + 0.002
        while time.monotonic() < until:
            pass
        time.sleep(0.06)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
threading.Event().wait()
"""
"""A daemon whose threads take a few per cent of a CPU each."""

_MASKS = """\
import glob, json
found = []
for folder in glob.glob("/proc/[0-9]*/task/[0-9]*"):
    try:
        stat = open(folder + "/stat", errors="replace").read()
        lines = open(folder + "/status", errors="replace").read().splitlines()
    except OSError:
        continue
    fields = stat[stat.rindex(")") + 2:].split()
    if int(fields[6]) & 0x04000000:
        continue  # PF_NO_SETAFFINITY: the kernel moves it, and nobody else can
    mask = next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))
    found.append([int(stat.split()[0]), int(fields[19]), stat[stat.index("(") + 1:stat.rindex(")")], mask])
print(json.dumps(found))
"""

TOKEN = "lab-token"
CALLER = Caller("lab", "127.0.0.1", "")
_CONFIG = "[api]\nbind = 0.0.0.0\ntoken_file = /etc/pinner/tokens\n[libvirt]\ncall_timeout = 120\n"
"""Everything takes its time in an emulated host."""

Threads = dict[tuple[int, int], tuple[str, CpuSet]]
"""Thread id and start time to name and mask."""


def pinner(host: LabHost, *words: str, check: bool = True) -> Result:
    """One pinner command on the host."""
    return host.run(f"pinner {shlex.join(words)}", check=check)


@cache
def serve(host: LabHost) -> RemoteService:
    """Begin `pinner serve` on the host, to be asked from here: starting Python for each question is slow in there."""
    host.run("mkdir -p /etc/pinner && cat > /etc/pinner/pinner.conf", stdin=_CONFIG)
    host.run(f"echo lab:{TOKEN} > /etc/pinner/tokens && systemd-run -q --unit=pinner pinner serve")
    return RemoteService(host.url, TOKEN)


@cache
def served(host: LabHost) -> RemoteService:
    """The host's server, when it answers."""
    pinner = serve(host)
    deadline = time.monotonic() + 120
    while True:
        with suppress(HostUnreachable):
            pinner.hosts()
            return pinner
        assert time.monotonic() < deadline, host.run("journalctl -u pinner").out
        time.sleep(1)


def name(host: LabHost) -> str:
    """The host's name in pinner."""
    return f"lab{host.machine.number}"


def inventory(host: LabHost) -> Snapshot:
    """The host as pinner sees it; loads are not measured."""
    return served(host).observe(name(host), 0)


def plan(host: LabHost, strategy: str = "shared-pool", **parameters: Any) -> Plan:
    """A stored plan."""
    return served(host).plan(name(host), Request(strategy, **parameters), None, 2.0, CALLER)


def apply(host: LabHost, made: Plan, *, migrate_memory: bool = False) -> tuple[str, str]:
    """Apply a plan; the run's id and how it ended."""
    return _ended(host, served(host).apply(made.id, False, CALLER, migrate_memory=migrate_memory))


def rollback(host: LabHost, run: str) -> str:
    """Take a run back; how that ended."""
    return _ended(host, served(host).rollback(run, CALLER))[1]


def _ended(host: LabHost, run: Run) -> tuple[str, str]:
    for _ in served(host).follow(run.id):
        pass
    ended = served(host).run(run.id)
    return run.id, f"{ended.state} {ended.error}".strip()


def masks(host: LabHost) -> Threads:
    """The kernel's word on every thread of the host, without pinner."""
    found = json.loads(host.run("python3 -", stdin=_MASKS).out)
    return {(tid, started): (name, CpuSet.parse(mask)) for tid, started, name, mask in found}


def planned(before: Threads, made: Plan) -> Threads:
    """What the kernel must say when the plan is so and nothing else has changed."""
    changes = [change for change in made.changes if isinstance(change, AffinityChange)]
    wanted = {(thread.tid, thread.started): change.after for change in changes for thread in change.before}
    return {key: (name, wanted.get(key, mask)) for key, (name, mask) in before.items()}


def wrong(expected: Threads, found: Threads) -> list[str]:
    """The threads that live and are not where they are expected."""
    return [
        f"{name} ({key[0]}) is on {found[key][1]}, not on {mask}"
        for key, (name, mask) in expected.items()
        if key in found and found[key][1] != mask
    ]


def boot_disk(host: LabHost, system: bytes = STOPPED) -> str:
    """A disk that guests of the host start from, as XML; its image is on the host then."""
    host.run(f"cat > {_IMAGE} && truncate -s 1M {_IMAGE}", stdin=system)
    return f"<disk type='file'><source file='{_IMAGE}'/><target dev='vda' bus='virtio'/><readonly/></disk>"


@contextmanager
def guests(host: LabHost, vcpus: Mapping[str, int] = GUESTS, system: bytes = STOPPED) -> Iterator[None]:
    """Guests of so many vCPUs, running; gone afterwards."""
    disk = boot_disk(host, system)
    try:
        for name, count in vcpus.items():
            host.run("virsh -q create /dev/stdin", stdin=guest_xml(name, vcpus=count, memory_mib=32, devices=disk))
        yield
    finally:
        host.run(f"for name in {' '.join(vcpus)}; do virsh -q destroy $name; done", check=False)


@contextmanager
def daemon(host: LabHost, unit: str, *, cpu: int | None = None, properties: str = "") -> Iterator[None]:
    """A busy daemon with a systemd unit of its own, which may have properties; with ``cpu`` its owner has pinned it
    there."""
    given = [properties] if properties else [] if cpu is None else [f"CPUAffinity={cpu}"]
    words = shlex.join(["systemd-run", "-q", f"--unit={unit}", *(f"-p{each}" for each in given)])
    host.run(f"{words} python3 -c {shlex.quote(BUSY)}")
    try:
        yield
    finally:
        host.run(f"systemctl stop {unit}")


@contextmanager
def stray(host: LabHost) -> Iterator[None]:
    """A busy process that somebody started from a shell: it has no unit of its own."""
    started = host.run(f"setsid python3 -c {shlex.quote(BUSY)} > /dev/null 2>&1 < /dev/null & echo $!")
    try:
        yield
    finally:
        host.run(f"kill {started.out.strip()}")
