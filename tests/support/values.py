"""Small values of the model, for tests in which their content does not matter."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Emulator, Guest, Vcpu
from pinner.model.machine.process import Lineage, Process, Thread
from pinner.model.machine.topology import Cpu, Kernel, Node, Topology
from pinner.model.plan.objective import compared, weighted
from pinner.model.plan.plan import Basis, Plan, Roles
from pinner.model.plan.request import Request
from pinner.model.run.journal import Entry, Run
from pinner.model.snapshot import Snapshot
from pinner.model.states import PartitionState

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EVIL = "web\n\x1b[31m<b>\u2028\u202e'"
"""A name with a line break, a terminal escape, markup, a line separator and a direction mark."""


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


MEMBER = PartitionState("member", CpuSet())
"""The state of a cgroup that is no partition and has no limit."""


def isolated(text: str, invalid: str = "") -> PartitionState:
    return PartitionState("isolated", cpus(text), invalid)


def root(text: str) -> PartitionState:
    return PartitionState("root", cpus(text))


def make_snapshot(host: str = "h1", minute: int = 0) -> Snapshot:
    four = tuple(Cpu(id=i, node=0, socket=0, die=0, core=i, l3=None, siblings=CpuSet.of([i])) for i in range(4))
    node = Node(id=0, cpus=cpus("0-3"), memory_kib=1024, free_kib=512, distances={0: 10})
    return Snapshot(
        host=host,
        taken_at=NOON + timedelta(minutes=minute),
        sample_seconds=0.0,
        topology=Topology(four, (node,), Kernel("6.1", "quiet", "v2", partitions=False)),
        guests=(),
        processes=(),
        baseline=cpus("0-3"),
    )


FINGERPRINT = make_snapshot().topology.fingerprint


def busy_process(pid: int, name: str = "busy", threads: int = 2) -> Process:
    """A process as make_change names it, with its threads on all CPUs of make_snapshot."""
    found = (Thread(pid + n, 7, name, cpus("0-3"), 10.0) for n in range(threads))
    return Process(pid, 7, name, f"/bin/{name}", f"{name}.service", False, 10.0 * threads, tuple(found))


def busy_host() -> Snapshot:
    """The host of make_snapshot with the processes 100, 110 and 120, each with two threads on all CPUs."""
    return replace(make_snapshot(), processes=tuple(map(busy_process, (100, 110, 120))))


def make_change(pid: int = 100, before: str = "0-3", after: str = "0", threads: int = 1) -> AffinityChange:
    masks = tuple(ThreadMask(pid + n, 7, cpus(before)) for n in range(threads))
    return AffinityChange(Target("process", str(pid), 7, "busy"), masks, cpus(after), "it is busy")


def make_plan(
    plan: str = "plan-1",
    snapshot: str = "s",
    changes: tuple[AffinityChange, ...] = (),
    host: str = "h1",
    blocked: str = "",
) -> Plan:
    return Plan(
        id=plan,
        host=host,
        request=Request(),
        basis=Basis(snapshot, NOON, FINGERPRINT),
        roles=Roles(cpus("0"), cpus("1"), cpus("2-3")),
        wanted=(),
        changes=changes,
        unplaced=(),
        skipped=(),
        warnings=(),
        objective=compared({"overcommit": 1.0}, {}, weighted()),
        blocked=blocked,
    )


def busy_plan(plan: str, basis: str, changes: Iterable[AffinityChange]) -> Plan:
    """A plan that busy_host admits: the roles share the CPUs of this small host."""
    every = cpus("0-3")
    return replace(make_plan(plan, basis, tuple(changes)), roles=Roles(every, every, every, ("the host is small",)))


def make_run(run: str = "run-1", host: str = "h1", **other: object) -> Run:
    values: dict[str, object] = {
        "kind": "apply",
        "plan": "plan-1",
        "actor": "ann",
        "origin": "cli",
        "state": "running",
        "started_at": NOON,
    }
    return Run(id=run, host=host, **(values | other))  # type: ignore[arg-type]


def make_entries(run: str = "run-1", count: int = 3) -> tuple[Entry, ...]:
    return tuple(
        Entry(run=run, seq=n, change=make_change(100 + 10 * n, after=str(n)), state="intent", at=NOON)
        for n in range(1, count + 1)
    )


def recorded(changes: Iterable[AffinityChange], since: int = 10**9) -> tuple[Entry, ...]:
    """The entries of a run that made these changes at ``since``, in clock ticks after boot."""
    lineage = Lineage("boot-1", since)
    return tuple(
        Entry("run-1", seq, change, "done", NOON, lineage=lineage) for seq, change in enumerate(changes, start=1)
    )


def sample_snapshot() -> Snapshot:
    """A host of four CPUs with one guest and two processes; the guest and a process have the name EVIL."""
    thread = Thread(tid=201, started=9, name=EVIL, affinity=cpus("0-3"), load=50.0, run_ns=5, delay_ns=2)
    guest = Guest(
        uuid="6a5b7a0e-0000-4000-8000-000000000001",
        name=EVIL,
        state="running",
        pid=200,
        vcpus=(Vcpu(0, thread, cpus("0-3")), Vcpu(1, None, cpus("0-3"))),
        emulator=Emulator(cpus("0-3"), (thread,)),
        iothreads=(),
        vhost_threads=(),
        memory_kib=65536,
        memory_per_node={0: 4096},
    )
    busy, idle = (
        Process(pid, 7, name, f"/bin/{name} -x", f"{name}.service", False, load, (replace(thread, tid=pid, load=load),))
        for pid, name, load in ((90, EVIL, 60.0), (1000, "idle", 0.5))
    )
    return replace(make_snapshot(), guests=(guest,), processes=(busy, idle))
