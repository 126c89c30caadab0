"""Made-up hosts: snapshots for plans, built from a few numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from pinner.model.change import AffinityChange
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Emulator, EmulatorPolicy, Guest, IoThread, Vcpu
from pinner.model.machine.process import Process, Thread
from pinner.model.machine.topology import Cpu, Device, Kernel, Node, Topology
from pinner.model.plan.plan import Plan
from pinner.model.snapshot import Snapshot, with_affinities

GIB = 1 << 20
"""In KiB."""
KERNEL = Kernel("6.12.0", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet", cgroup="v2", partitions=True)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def topology(
    nodes: Mapping[int, Iterable[Iterable[int]]],
    *,
    offline: str = "",
    isolated: str = "",
    nohz_full: str = "",
    kernel: Kernel = KERNEL,
    memory_kib: Mapping[int, int] | int = 64 * GIB,
    devices: tuple[Device, ...] = (),
    sockets: Mapping[int, int] | None = None,
) -> Topology:
    """The nodes with their cores, each core as its hardware threads; one socket for each node unless ``sockets`` says
    otherwise."""
    off, alone, tickless = cpus(offline), cpus(isolated), cpus(nohz_full)
    found = []
    for node, cores in nodes.items():
        for number, core in enumerate(cores):
            threads = CpuSet.of(core)
            for cpu in threads:
                siblings = CpuSet.of([cpu]) if cpu in off else threads - off
                socket = (sockets or {}).get(cpu, node)
                found.append(
                    Cpu(cpu, node, socket, None, number, None, siblings, cpu not in off, cpu in alone, cpu in tickless)
                )
    memory = {node: memory_kib if isinstance(memory_kib, int) else memory_kib.get(node, 0) for node in nodes}
    distances = {node: {other: 10 if other == node else 20 for other in nodes} for node in nodes}
    return Topology(
        cpus=tuple(sorted(found, key=lambda cpu: cpu.id)),
        nodes=tuple(
            Node(
                node,
                CpuSet.of(c.id for c in found if c.node == node and c.online),
                memory[node],
                memory[node],
                distances[node],
            )
            for node in nodes
        ),
        kernel=kernel,
        devices=devices,
    )


def plain(count: int, nodes: int = 1, **more: object) -> Topology:
    """Cores of one thread each, in equal blocks on the nodes."""
    block = count // nodes
    return topology({n: [[c] for c in range(n * block, (n + 1) * block)] for n in range(nodes)}, **more)


def interleaved(cores: int, nodes: int = 2, **more: object) -> Topology:
    """Cores of two threads: core c is on node c modulo nodes, its threads are CPUs c and c + cores."""
    return topology({n: [[c, c + cores] for c in range(n, cores, nodes)] for n in range(nodes)}, **more)


def with_caches(top: Topology, *domains: str) -> Topology:
    """The topology whose CPUs share these level-3 caches."""
    sets = tuple(map(cpus, domains))
    found = (replace(cpu, l3=next(n for n, each in enumerate(sets) if cpu.id in each)) for cpu in top.cpus)
    return replace(top, cpus=tuple(found), l3_domains=sets)


def with_classes(top: Topology, *classes: str, clusters: Iterable[str] = ()) -> Topology:
    """The topology whose cores are of these classes, fastest first."""
    sets = tuple(map(cpus, classes))
    ranked = (replace(cpu, core_class=next(n for n, each in enumerate(sets) if cpu.id in each)) for cpu in top.cpus)
    return replace(top, cpus=tuple(ranked), clusters=tuple(map(cpus, clusters)))


def guest(
    number: int,
    vcpus: int,
    floor: CpuSet,
    *,
    pins: Iterable[str] = (),
    memory: Mapping[int, int] | None = None,
    memory_kib: int = 2 * GIB,
    iothreads: int = 0,
    vhost_threads: int = 0,
    unplugged: int = 0,
    policy: EmulatorPolicy = "",
    **more: object,
) -> Guest:
    """Guest g<number> whose threads may use ``floor``, its vCPUs ``pins`` where given."""
    base = 10_000 + 1_000 * number
    masks = [cpus(pin) for pin in pins] or [floor] * vcpus
    return Guest(
        uuid=f"00000000-0000-4000-8000-{number:012d}",
        name=f"g{number}",
        state="running",
        pid=base,
        vcpus=(
            *(Vcpu(v, Thread(base + 10 + v, 7, f"CPU {v}/KVM", masks[v]), masks[v]) for v in range(vcpus)),
            *(Vcpu(v, None, floor) for v in range(vcpus, vcpus + unplugged)),
        ),
        emulator=Emulator(floor, (Thread(base, 7, "qemu", floor), Thread(base + 1, 7, "worker", floor)), policy),
        iothreads=tuple(
            IoThread(i + 1, Thread(base + 500 + i, 7, f"IO iothread{i + 1}", floor), floor) for i in range(iothreads)
        ),
        vhost_threads=tuple(
            Thread(base + 600 + h, 7, f"vhost-{base}", floor, immovable_reason="guest") for h in range(vhost_threads)
        ),
        memory_kib=memory_kib,
        memory_per_node={0: memory_kib} if memory is None else memory,
        **more,
    )


def process(pid: int, load: float, *masks: str, name: str = "daemon", reasons: Iterable[str] = (), **more: object):
    """A process with a thread for each mask, and with as many immovable ``reasons``; all threads have the same load."""
    immovable = list(reasons) or [""] * len(masks)
    threads = tuple(
        Thread(pid + i, 5, name, cpus(mask), load / len(masks), immovable_reason=immovable_reason)
        for i, (mask, immovable_reason) in enumerate(zip(masks, immovable, strict=True))
    )
    return Process(pid, 5, name, f"/usr/bin/{name}", f"{name}.service", False, load, threads, **more)


def snapshot(
    top: Topology, guests: Iterable[Guest] = (), processes: Iterable[Process] = (), **more: object
) -> Snapshot:
    facts = {"sample_seconds": 5.0, "baseline": top.online - top.isolated} | more
    return Snapshot("compute1", NOON, topology=top, guests=tuple(guests), processes=tuple(processes), **facts)


def applied(before: Snapshot, plan: Plan, *, by_hand: bool = False) -> Snapshot:
    """The host after the plan's changes.

    ``by_hand``: an administrator ran the plan's commands, so that pinner takes the processes' new masks for restricted
    affinities. Otherwise pinner knows that it set these masks itself.
    """
    changes = [change for change in plan.changes if isinstance(change, AffinityChange)]
    masks = {thread.tid: change.after for change in changes for thread in change.before}
    moved = {change.target.part: change for change in changes if change.target.kind == "process"}
    placed = before.placed if by_hand else (*before.placed, *_masks(moved.values()))
    return replace(masked(before, masks, by_hand=by_hand), placed=placed)


def masked(before: Snapshot, masks: Mapping[int, CpuSet], *, by_hand: bool = False) -> Snapshot:
    """The host whose threads have these affinities, by thread id."""

    def owned(thread: Thread) -> Thread:
        is_new = by_hand and thread.tid in masks and not thread.immovable_reason
        return replace(thread, immovable_reason="restricted") if is_new else thread

    moved = with_affinities(before, masks)
    return replace(
        moved, processes=tuple(replace(each, threads=tuple(map(owned, each.threads))) for each in moved.processes)
    )


def _masks(changes: Iterable[AffinityChange]) -> tuple[CpuSet, ...]:
    return tuple(sorted({change.after for change in changes}, key=str))
