"""An agent's process in which guests start and end as fast as they go; the clock goes on by minutes in a second.

    python many_starts.py FOLDER COUNT EVERY

libvirt is its own driver for tests (test:///default), which runs in this process: connections, events and metadata are
real. The process of each guest is a fork of a small one, with the names of QEMU's threads. After EVERY starts the
program prints the number of starts, the PSS of its own memory in KiB, and the number of objects about guests.
"""

import gc
import os
import subprocess
import sys
import uuid
from collections import deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import libvirt  # type: ignore[import-untyped]
from support.values import make_plan, make_run

from pinner.agent.freed_memory import give_back, use_one_heap
from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.agent.recorder import Recorder
from pinner.agent.socket.client import AgentClient
from pinner.agent.socket.server import AgentServer
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import AgentTrailFile
from pinner.host.inventory import LIVE, SnapshotInputs, take_snapshot
from pinner.host.kernel import files
from pinner.host.kernel.kernel import boot_id
from pinner.host.live import LiveHost
from pinner.host.measure.meter import HostMeter
from pinner.host.nova import nova_conf
from pinner.host.processes.sampling import Scanner
from pinner.host.virt.domain_xml import Domain
from pinner.host.virt.libvirt import Libvirt
from pinner.host.virt.libvirt_events import OwnPins
from pinner.host.watch.events import HostWatcher
from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.outcome.measures import HOST as HOST_SUBJECT
from pinner.model.plan.plan import Basis, Roles
from pinner.model.snapshot import Snapshot
from pinner.store.history import HistoryFiles
from pinner.store.journal.journal import StoredJournal
from pinner.store.journal.opening import LastMasks

URI = "test:///default"
HOST = "h1"
AT_ONCE = 8
"""Guests that run."""
SECONDS = 7.2
"""Between two starts: 500 an hour."""
VCPUS = 4
NO_GUEST = "00000000-0000-0000-0000-000000000000"
CPUS = sorted(os.sched_getaffinity(0))
EMULATORS, VCPU_POOL = CpuSet.of(CPUS[:1]), CpuSet.of(CPUS[-1:])
NURSERY = f"""
import os, sys, threading
from pathlib import Path
def become(uuid):
    Path("/proc/self/comm").write_text("qemu-system-x86")
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45])
    at = Path("/proc/self/cmdline").read_bytes().rindex(b"{NO_GUEST}")
    memory = os.open("/proc/self/mem", os.O_WRONLY)
    os.pwrite(memory, uuid.encode(), start + at)
    named = threading.Barrier({VCPUS + 2})
    def thread(name):
        Path(f"/proc/self/task/{{threading.get_native_id()}}/comm").write_text(name)
        named.wait()
        threading.Event().wait()
    for name in ("IO iothread1", *(f"CPU {{each}}/TCG" for each in range({VCPUS}))):
        threading.Thread(target=thread, args=(name,), daemon=True).start()
    named.wait()
    os.write(1, f"{{os.getpid()}}\\n".encode())
    threading.Event().wait()
children = set()
def end(pid):
    children.remove(pid)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
for line in sys.stdin:
    word, _, value = line.strip().partition(" ")
    if word == "end":
        end(int(value))
        os.write(1, b"ended\\n")
    elif child := os.fork():
        children.add(child)
    else:
        become(value)
for child in tuple(children):
    end(child)
"""
XML = """<domain type='test'><name>{name}</name><uuid>{uuid}</uuid><description>{filler}</description>
<memory unit='MiB'>64</memory><vcpu>{vcpus}</vcpu><iothreads>1</iothreads><os><type>hvm</type></os></domain>"""


class Processes:
    """The processes of the guests."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", NURSERY, "-uuid", NO_GUEST]
        self._nursery = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _ask(self, line: str) -> str:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(f"{line}\n".encode())
        self._nursery.stdin.flush()
        return self._nursery.stdout.readline().decode().strip()

    def start(self, guest: str) -> int:
        return int(self._ask(f"start {guest}"))

    def end(self, pid: int) -> None:
        assert self._ask(f"end {pid}") == "ended"

    def close(self) -> None:
        self._nursery.communicate()


class Driver(Libvirt):
    """The driver for tests changes no thread, and pins vCPUs only with the flags of the first version."""

    def pin(self, target: Target, cpus: CpuSet, *, persist: bool) -> None:
        mask = tuple(cpu in cpus for cpu in range(max(cpus) + 1))

        def work(domain: Any) -> None:
            if target.kind == "vcpu":
                domain.pinVcpu(target.part, mask)
            elif target.kind == "emulator":
                domain.pinEmulator(mask, libvirt.VIR_DOMAIN_AFFECT_LIVE)
            else:
                domain.pinIOThread(target.part, mask, libvirt.VIR_DOMAIN_AFFECT_LIVE)

        self._daemon.ask_domain(str(target), target.owner, work, change=True)


@dataclass
class Running:
    uuid: str
    name: str
    pid: int
    domain: Any


class Clock:
    """It goes on by SECONDS with each start. It begins now: files of measures have the machine's time."""

    def __init__(self) -> None:
        self.passed = 0.0
        self._began = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self._began + timedelta(seconds=self.passed)

    def monotonic(self) -> float:
        return self.passed


class Agent:
    """The agent as pinner/wiring puts it together, with another clock and the driver for tests."""

    def __init__(self, folder: Path) -> None:
        libvirt.virConnect.setKeepAlive = lambda *_: 0  # the driver has neither a connection to keep alive
        libvirt.virDomain.jobStats = lambda *_: {}  # nor jobs
        self.clock = clock = Clock()
        self.libvirt, self.journal, own_pins = Driver(URI), StoredJournal(folder), OwnPins()
        queue, placed = HostEventQueue(clock), LastMasks(self.journal)
        (folder / "nova.conf").write_text("[DEFAULT]\n")
        read_nova = nova_conf.Reader([folder / "nova.conf"])
        self.host = LiveHost(self.libvirt, own_pins=own_pins)
        trail = AgentTrailFile(HOST, self.journal.chain, SigningKey(folder / "signing.key"), clock)
        self.watcher = HostWatcher(URI, own_pins, queue, placed)
        meter = HostMeter(LIVE, self.libvirt, clock.monotonic)
        self.recorder = Recorder(meter, HistoryFiles(folder / "history"), clock)
        scanner, self.qemus = Scanner(LIVE), set[int]()

        def take(seconds: float) -> Snapshot:
            others = frozenset(map(int, files.numbers("/proc"))) - self.qemus
            return take_snapshot(
                LIVE, HOST, self.libvirt, sample_seconds=seconds, now=clock,
                inputs=SnapshotInputs(
                    own=others, placed=placed(), pins=self.journal.recorded_pins, scanner=scanner, nova=read_nova()
                ),
            )  # fmt: skip

        self._agent = LocalAgent(
            take, self.host, self.journal, clock, queue, trail, name=HOST, boot=boot_id(LIVE),
            histories=self.recorder.measures,
        )  # fmt: skip
        self._server = AgentServer(self._agent, folder / "agent.sock", os.geteuid())
        self._server.start()
        self.watcher.start()
        self.client = AgentClient(HOST, folder / "agent.sock")

    def close(self) -> None:
        self.watcher.close()
        self._agent.close()
        self._server.close()
        self.journal.close()


class Starts:
    """Guests that start, are placed and measured, and end."""

    def __init__(self, folder: Path) -> None:
        self._agent, self._processes = Agent(folder), Processes()
        self._connection = libvirt.open(URI)
        self._guests: deque[Running] = deque()
        self._seen = 0
        self._count = 0

    def start(self) -> None:
        self._count += 1
        guest, name = str(uuid.uuid4()), f"guest-{self._count}"
        pid = self._processes.start(guest)
        xml = XML.format(name=name, uuid=guest, vcpus=VCPUS, filler="x" * 4000)
        self._agent.qemus.add(pid)
        self._guests.append(Running(guest, name, pid, self._connection.createXML(xml, 0)))
        self._wait_for("guest-started", guest)
        self._place(guest)
        self._agent.clock.passed += SECONDS
        self._agent.recorder.record()
        if self._count % 40 == 0:  # every five minutes
            give_back()
        if self._count % 500 == 0:
            self._agent.recorder.purge()
        if len(self._guests) > AT_ONCE:
            self._end(self._guests.popleft())

    def _end(self, guest: Running) -> None:
        guest.domain.destroy()
        self._wait_for("guest-stopped", guest.uuid)
        self._processes.end(guest.pid)
        self._agent.qemus.remove(guest.pid)

    def _wait_for(self, kind: str, guest: str) -> None:
        while True:
            events = self._agent.client.host_events(self._seen, 10.0, ())
            self._seen = events[-1].seq
            if any((event.kind, event.subject) == (kind, guest) for event in events):
                return

    def _place(self, uuid: str) -> None:
        client, run = self._agent.client, f"run-{self._count}"
        snapshot = client.snapshot(0.0)
        guest = next(each for each in snapshot.guests if each.uuid == uuid)
        plan = make_plan(f"plan-{self._count}", changes=tuple(_changes(guest)))
        plan = replace(
            plan,
            host=HOST,
            roles=Roles(CpuSet(), EMULATORS, VCPU_POOL),
            basis=Basis("s", self._agent.clock(), snapshot.topology.fingerprint),
        )
        ended = client.apply(plan, make_run(run, plan=plan.id), lambda *_: None)
        assert ended.state == "applied", ended
        client.entries(run)
        client.audit_head(None)
        if self._count % 10 == 0:
            now = self._agent.clock()
            client.measures(now - timedelta(minutes=1), now, 5, HOST_SUBJECT)
            back = make_run(f"back-{self._count}", kind="rollback", undoes=run, plan="")
            assert client.rollback(back, lambda *_: None).state.startswith("rolled_back")

    def close(self) -> None:
        while self._guests:
            self._end(self._guests.popleft())
        self._processes.close()
        self._agent.close()


def _changes(guest: Guest):
    def change(kind, part, threads, after):
        before = tuple(ThreadMask(each.tid, each.started, each.affinity) for each in threads)
        return AffinityChange(Target(kind, guest.uuid, part, guest.name), before, after, "a test")

    yield change("emulator", None, guest.emulator.threads, EMULATORS)
    for each in guest.iothreads:
        yield change("iothread", each.id, [each.thread], EMULATORS)
    for each in guest.vcpus:
        yield change("vcpu", each.id, [each.thread], VCPU_POOL)


def pss() -> int:
    """The PSS of this process in KiB, without files: a page of a library counts more when another process ends."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))


def objects() -> int:
    """The number of objects that the process has about guests."""
    gc.collect()
    return sum(isinstance(each, (Target, ThreadMask, Domain)) for each in gc.get_objects())


def main(folder: str, count: str, every: str) -> None:
    use_one_heap()  # as the agent's own main
    starts = Starts(Path(folder))
    for number in range(1, int(count) + 1):
        starts.start()
        if number % int(every) == 0:
            kept = objects()
            give_back()  # as every five minutes: what glibc keeps of freed memory differs by some MiB from day to day
            print(number, pss(), kept, flush=True)
    starts.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
