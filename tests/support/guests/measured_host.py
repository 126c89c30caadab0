"""The service of this machine with a recorder, a real guest that is busy, and processes that delay it."""

import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from support.system.kernel import masks

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.agent.recorder import SECONDS, Recorder
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import AgentTrailFile
from pinner.host.inventory import take_snapshot
from pinner.host.live import ROOT, LiveHost
from pinner.host.measure.meter import HostMeter
from pinner.host.virt.libvirt import Libvirt
from pinner.model.guest.guest import Guest
from pinner.service.local import ServiceParts
from pinner.service.outcome.probe_execution import Timing
from pinner.store.history import HistoryFiles
from pinner.store.journal.journal import StoredJournal
from pinner.store.repositories import open_store

BUSY = ["/bin/sh", "-c", "while :; do :; done"]
NOW_AND_THEN = ["/bin/sh", "-c", "while :; do i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; sleep 0.07; done"]
"""It works for some 30 ms, and then pauses for 70 ms."""

ALWAYS_BUSY = b"\xeb\xfe"
"""The boot sector of a guest whose vCPU works all the time: jmp $."""
BUSY_NOW_AND_THEN = b"\xfb\x66\xb9\x00\x09\x3d\x00\x67\xe2\xfd\xf4\xeb\xf4"
"""The boot sector of a guest whose vCPU works for a moment after each tick of its timer, 18 times a second: sti; again:
mov ecx, 4000000; loop $; hlt; jmp again."""

PRIORITY = -5
"""Above that of other work on this machine, so that only the guest and the busy processes count."""


def machine_now() -> datetime:
    return datetime.now(UTC)


def start_busy_guest(start_guest: Callable[..., Guest], folder: Path, code: bytes = ALWAYS_BUSY) -> Guest:
    """A guest with one vCPU that runs the code in the boot sector of its disk."""
    disk = folder / "disk.img"
    disk.write_bytes(code.ljust(510, b"\0") + b"\x55\xaa" + bytes(1 << 20))
    folder.chmod(0o711)
    disk.chmod(0o666)
    device = f"<disk type='file'><source file='{disk}'/><target dev='hda' bus='ide'/></disk>"
    started = start_guest(paused=False, vcpus=1, iothreads=0, devices=device)
    for tid in masks(started.pid):
        os.setpriority(os.PRIO_PROCESS, tid, PRIORITY)
    return started


@contextmanager
def busy_processes(count: int, cpus: Iterable[int], priority: int = PRIORITY) -> Iterator[list[int]]:
    """The ids of processes that only work, on these CPUs."""
    with _processes(BUSY, count, cpus) as pids:
        for pid in pids:
            os.setpriority(os.PRIO_PROCESS, pid, priority)
        yield pids


def make_real_time(tids: Iterable[int]) -> None:
    """Only real-time threads delay these threads then. A priority does not suffice: the kernel shares CPUs between
    cgroups and sessions first. Some kernels give a guest's cgroup no real time, so the threads leave it."""
    for tid in tids:
        if (root := Path("/sys/fs/cgroup/cpu/tasks")).exists():
            root.write_text(str(tid))
        os.sched_setscheduler(tid, os.SCHED_RR, os.sched_param(1))


@contextmanager
def real_time_processes(count: int, cpus: Iterable[int]) -> Iterator[list[int]]:
    """The ids of real-time processes that work now and then, on these CPUs."""
    with _processes(NOW_AND_THEN, count, cpus) as pids:
        make_real_time(pids)
        yield pids


@contextmanager
def _processes(command: list[str], count: int, cpus: Iterable[int]) -> Iterator[list[int]]:
    """The ids of processes of another user, on these CPUs; no plan takes their CPUs for claimed."""
    wanted = set(cpus)
    with ExitStack() as stack:
        pids = []
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen(command, user="nobody"))
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, wanted)
            pids.append(process.pid)
        yield pids


@contextmanager
def urgent() -> Iterator[None]:
    """This thread, and threads that are started meanwhile, do not wait for the busy processes."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, 3 * PRIORITY)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


class QuickClock:
    """A clock that passes five times as fast as the machine's. It begins in the past: files must not look older."""

    FACTOR = 5

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._begin = machine_now() - timedelta(hours=2)

    def now(self) -> datetime:
        return self._begin + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return self.FACTOR * (time.monotonic() - self._start)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds / self.FACTOR)


@contextmanager
def measured_service(
    folder: Path, host: LiveHost, libvirt: Libvirt, clock: QuickClock | None = None
) -> Iterator[ServiceParts]:
    """The service of this machine as host h1, whose recorder works as in a server, by a quick clock if one is given."""
    now = clock.now if clock else machine_now
    timing = Timing(now, clock.monotonic, clock.wait) if clock else None
    seconds = SECONDS / (clock.FACTOR if clock else 1)
    recorder = Recorder(HostMeter(ROOT, libvirt), HistoryFiles(folder / "history"), now, seconds=seconds)
    take = partial(take_snapshot, ROOT, "h1", libvirt, now=now)
    with ExitStack() as stack:
        stack.enter_context(urgent())
        journal = stack.enter_context(closing(StoredJournal(folder / "agent")))
        trail = AgentTrailFile("h1", journal.chain, SigningKey(folder / "agent" / "signing.key"), now)
        agent = LocalAgent(
            lambda seconds: take(sample_seconds=seconds), host, journal, now, HostEventQueue(now), trail,
            name="h1", histories=recorder.measures,
        )  # fmt: skip
        recorder.start()
        stack.callback(recorder.join)
        stack.callback(recorder.stop)
        store = stack.enter_context(open_store(f"sqlite:///{folder}/pinner.sqlite"))
        parts = ServiceParts({"h1": agent}, store, now, lambda: uuid.uuid4().hex[:12], 0.0, timing=timing)
        yield stack.enter_context(closing(parts))


def wait_until(what: Callable[[], bool], seconds: float, pause: float = 0.5) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(pause)


def steps(parts: ServiceParts, guest: Guest, now: Callable[[], datetime] = machine_now) -> int:
    """How many steps of the guest's delay are known."""
    begin = now() - timedelta(minutes=5)
    histories = parts.service._hosts.agent("h1").measures(begin, now(), 5, "")
    values = [each.values["delay_vcpu"] for each in histories if each.subject == guest.uuid]
    return sum(value is not None for value in values[0]) if values else 0
