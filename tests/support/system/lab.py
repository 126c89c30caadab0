"""Steps of the lab tests on a lab host: start guests and daemons, call pinner, and read masks from the kernel."""

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, wraps
from typing import Any

import httpx
from lab.agent import Result
from lab.host import LabHost
from private_libvirt import guest_xml

from pinner.model.change import AffinityChange
from pinner.model.cpuset import CpuSet
from pinner.model.errors import HostUnreachable
from pinner.model.page import PageRequest
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions, Run
from pinner.model.snapshot import Snapshot
from pinner.service.remote.remote import RemoteService

GUESTS = {"alpha": 4, "beta": 2, "gamma": 1}
"""The number of vCPUs of each guest, by its name."""
_IMAGE = "/var/lib/libvirt/images/boot.img"
STOPPED = bytes.fromhex("faf4ebfd").ljust(510, b"\0") + b"\x55\xaa"
"""A boot sector that halts forever: nested emulation is slow, and a halted guest can be pinned as well."""

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
        continue  # PF_NO_SETAFFINITY: only the kernel can move this thread
    mask = next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))
    found.append([int(stat.split()[0]), int(fields[19]), stat[stat.index("(") + 1:stat.rindex(")")], mask])
print(json.dumps(found))
"""

CALLER = Caller("lab", "127.0.0.1", "")
_CONFIG = "[api]\nbind = 0.0.0.0\n[libvirt]\ncall_timeout = 120\n"
"""The long timeout is needed because an emulated host is slow."""

PATIENCE = 240.0
"""For how many seconds a call that can be repeated is repeated where the agent of an emulated host is silent."""
REPEATABLE = ("drift", "hosts", "observe", "plan", "plan_by_id", "plans", "run", "runs", "set_policy")
"""The calls of a service that change nothing on the host, or that give the same result twice."""

Threads = dict[tuple[int, int], tuple[str, CpuSet]]
"""The name and mask of each thread, by its id and start time."""


def pinner(host: LabHost, *arguments: str, check: bool = True) -> Result:
    """Run one pinner command on the host."""
    return host.run(f"pinner {shlex.join(arguments)}", check=check)


START_SECONDS = 240
"""How long an emulated host may take to start the server."""


@cache
def start_server(host: LabHost) -> RemoteService:
    """Start `pinner serve` on the host and return its client.

    The tests call the server from this machine, because each start of Python on an emulated host is slow.
    """
    host.run("useradd --system --user-group --no-create-home --shell /usr/sbin/nologin pinner")
    host.run("mkdir -p /etc/pinner && cat > /etc/pinner/pinner.conf", stdin=_CONFIG)
    run_server(host)
    token = host.run("/opt/pinner/bin/pinner-manage token create lab --role admin").out.strip()
    return RemoteService(host.url, token)


def run_server(host: LabHost) -> None:
    """Run `pinner serve` on the host, until it answers."""
    host.run("systemd-run -q --collect --unit=pinner pinner serve")
    _wait_for_server(host)


def _wait_for_server(host: LabHost) -> None:
    """Wait until the server answers: it has made its database then, as the user who owns it."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(httpx.TransportError):
            httpx.get(f"{host.url}/healthcheck", timeout=10)
            return
        assert time.monotonic() < deadline, host.run("journalctl -u pinner").out
        time.sleep(1)


def patient(service: RemoteService, seconds: float = PATIENCE, pause: float = 1.0) -> RemoteService:
    """The same service, whose calls of REPEATABLE are repeated while the host's agent is not reached.

    On a busy machine an emulated host can stand still for longer than the agent may be silent.
    """

    def repeated(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def work(*arguments: Any, **named: Any) -> Any:
            deadline = time.monotonic() + seconds
            while True:
                try:
                    return call(*arguments, **named)
                except HostUnreachable:
                    if time.monotonic() > deadline:
                        raise
                time.sleep(pause)

        return work

    for name in REPEATABLE:
        setattr(service, name, repeated(getattr(service, name)))
    return service


def begun(
    service: RemoteService, plan: str, options: ApplyOptions, seconds: float = PATIENCE, pause: float = 1.0
) -> Run:
    """The run that applies a plan. Where the agent is silent, the stored run tells whether it began: a run that failed
    changed nothing, and the plan is applied again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return service.apply(plan, options, CALLER)
        except HostUnreachable:
            run = next(run for run in service.runs(None, PageRequest(20)).items if run.plan == plan)
            while run.state == "running" and time.monotonic() < deadline:
                time.sleep(pause)
                run = service.run(run.id)
            if run.state not in ("running", "failed"):
                return run
            if time.monotonic() > deadline:
                raise


@cache
def server(host: LabHost) -> RemoteService:
    """The client of the host's server, once the server answers."""
    pinner = patient(start_server(host))
    pinner.hosts()
    return pinner


def name(host: LabHost) -> str:
    """The host's name in pinner."""
    return f"lab{host.machine.number}"


def inventory(host: LabHost) -> Snapshot:
    """A snapshot of the host by pinner, without measured loads."""
    return server(host).observe(name(host), 0)


def plan(host: LabHost, strategy: str = "shared-pool", **parameters: Any) -> Plan:
    """Create and store a plan."""
    return server(host).plan(name(host), Request(strategy, **parameters), None, 2.0, CALLER)


def apply(host: LabHost, new_plan: Plan, *, migrate_memory: bool = False) -> tuple[str, str]:
    """Apply a plan, also one that makes the objective worse, as on the lab's small nodes; the run's id, and its final
    state with any error."""
    options = ApplyOptions(migrate_memory=migrate_memory, allow_worse=True)
    return ended(host, begun(server(host), new_plan.id, options))


def rollback(host: LabHost, run: str) -> str:
    """Roll back a run; the final state of the rollback with any error."""
    return ended(host, server(host).rollback(run, CALLER))[1]


def ended(host: LabHost, run: Run) -> tuple[str, str]:
    """Wait for the end of a run; its id, and its final state with any error."""
    while (ended := server(host).run(run.id)).state == "running":
        time.sleep(0.5)
    return run.id, f"{ended.state} {ended.error}".strip()


def masks(host: LabHost) -> Threads:
    """The kernel's mask of every thread of the host, read without pinner."""
    found = json.loads(host.run("python3 -", stdin=_MASKS).out)
    return {(tid, started): (name, CpuSet.parse(mask)) for tid, started, name, mask in found}


def planned(before: Threads, new_plan: Plan) -> Threads:
    """The masks that the kernel must show once the plan is applied and nothing else has changed."""
    changes = [change for change in new_plan.changes if isinstance(change, AffinityChange)]
    wanted = {(thread.tid, thread.started): change.after for change in changes for thread in change.before}
    return {key: (name, wanted.get(key, mask)) for key, (name, mask) in before.items()}


def wrong(expected: Threads, found: Threads) -> list[str]:
    """A line for each running thread whose mask is not the expected one."""
    return [
        f"{name} ({key[0]}) is on {found[key][1]}, not on {mask}"
        for key, (name, mask) in expected.items()
        if key in found and found[key][1] != mask
    ]


def boot_disk(host: LabHost, system: bytes = STOPPED) -> str:
    """Write the image of a boot disk to the host; the XML of the disk."""
    host.run(f"cat > {_IMAGE} && truncate -s 1M {_IMAGE}", stdin=system)
    return f"<disk type='file'><source file='{_IMAGE}'/><target dev='vda' bus='virtio'/><readonly/></disk>"


@contextmanager
def guests(host: LabHost, vcpus: Mapping[str, int] = GUESTS, system: bytes = STOPPED) -> Iterator[None]:
    """Running guests with these numbers of vCPUs; they end with the context."""
    disk = boot_disk(host, system)
    try:
        for name, count in vcpus.items():
            host.run("virsh -q create /dev/stdin", stdin=guest_xml(name, vcpus=count, memory_mib=32, devices=disk))
        yield
    finally:
        host.run(f"for name in {' '.join(vcpus)}; do virsh -q destroy $name; done", check=False)


@contextmanager
def daemon(host: LabHost, unit: str, *, cpu: int | None = None, properties: str = "") -> Iterator[None]:
    """A busy daemon with its own systemd unit, which may have properties; its owner pins it to ``cpu``."""
    options = [properties] if properties else [] if cpu is None else [f"CPUAffinity={cpu}"]
    command = shlex.join(["systemd-run", "-q", f"--unit={unit}", *(f"-p{option}" for option in options)])
    host.run(f"{command} python3 -c {shlex.quote(BUSY)}")
    try:
        yield
    finally:
        host.run(f"systemctl stop {unit}")


@contextmanager
def shell_process(host: LabHost) -> Iterator[None]:
    """A busy process that was started from a shell, so it has no systemd unit of its own."""
    started = host.run(f"setsid python3 -c {shlex.quote(BUSY)} > /dev/null 2>&1 < /dev/null & echo $!")
    try:
        yield
    finally:
        host.run(f"kill {started.out.strip()}")
