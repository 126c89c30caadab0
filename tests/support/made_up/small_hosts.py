"""Small random hosts by seed: 1 to 4 nodes, some without CPUs or memory, guests of any size with memory, devices, cells
and bounds anywhere, guests that stay, and measured loads."""

import random
from dataclasses import replace

from support.hosts import GIB, guest, process, snapshot, topology, with_caches

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.guest.guest_numa import GuestCell, GuestNuma, MemoryBinding
from pinner.model.machine.process import Process
from pinner.model.machine.topology import Device, Topology
from pinner.model.snapshot import Snapshot


def small_host(seed: int) -> Snapshot:
    chance = random.Random(seed)
    top = _topology(chance)
    guests = tuple(_guest(number, top, chance) for number in range(chance.randint(1, 8)))
    qemus = [_qemu(each, chance) for each in guests] if chance.random() < 0.5 else []
    daemons = [
        process(300 + 10 * number, chance.choice([0.0, 3.0, 60.0, 250.0]), str(top.online), name=f"daemon{number}")
        for number in range(chance.randint(0, 3))
    ]
    return snapshot(top, guests, [*daemons, *qemus])


def _topology(chance: random.Random) -> Topology:
    count, width = chance.choice([1, 2, 2, 2, 3, 4]), chance.choice([1, 2])
    ids = chance.sample(range(8), count)
    sizes = {node: chance.choice([4, 6, 8, 8, 12]) for node in ids}
    if count > 1 and chance.random() < 0.2:
        sizes[ids[-1]] = 0
    free = iter(range(sum(sizes.values()) * width))
    nodes = {node: [[next(free) for _ in range(width)] for _ in range(size)] for node, size in sizes.items()}
    memory = {node: chance.choice([16, 64, 64, 256]) * GIB for node in ids}
    if count > 1 and chance.random() < 0.25:
        memory[chance.choice(ids)] = 0
    devices = tuple(Device("pci", f"0000:{node:02x}:00.0", node) for node in ids)
    top = topology(nodes, memory_kib=memory, devices=devices)
    if chance.random() < 0.5:
        far = {pair: chance.choice([12, 20, 20, 32]) for pair in ((a, b) for a in ids for b in ids if a < b)}
        distances = {
            node: {other: 10 if node == other else far[min(node, other), max(node, other)] for other in ids}
            for node in ids
        }
        top = replace(top, nodes=tuple(replace(node, distances=distances[node.id]) for node in top.nodes))
    halves = [half for cores in nodes.values() for half in (cores[: len(cores) // 2], cores[len(cores) // 2 :]) if half]
    caches = [str(CpuSet.of(cpu for core in half for cpu in core)) for half in halves]
    return with_caches(top, *caches) if chance.random() < 0.5 else top


def _guest(number: int, top: Topology, chance: random.Random) -> Guest:
    ids = [node.id for node in top.nodes]
    size, home = chance.choice([1, 2, 2, 3, 4, 4, 6, 8, 10]), chance.choice(ids)
    floors = [top.online, top.online, *(node.cpus for node in top.nodes if node.cpus)]
    memory = chance.choice([{home: 2 * GIB}, {home: 2 * GIB}, {home: GIB, chance.choice(ids): GIB}, {}])
    return guest(
        number,
        size,
        chance.choice(floors),
        memory=memory,
        memory_kib=chance.choice([2, 2, 8, 24]) * GIB,
        iothreads=chance.choice([0, 0, 1]),
        pci=(f"0000:{chance.choice(ids):02x}:00.0",) if chance.random() < 0.25 else (),
        numa=_numa(size, chance.choice(ids), home, chance),
        excluded=chance.random() < 0.05,
    )


def _numa(size: int, node: int, other: int, chance: random.Random) -> GuestNuma:
    half = CpuSet.of(range(size // 2))
    cells = tuple(
        GuestCell(cell, vcpus, GIB, MemoryBinding("strict", (where,)))
        for cell, vcpus, where in ((0, half, node), (1, CpuSet.of(range(size)) - half, other))
    )
    return chance.choice(
        [
            *[GuestNuma()] * 6,
            GuestNuma(memory=MemoryBinding("strict", (node,))),
            GuestNuma(memory=MemoryBinding("strict", tuple(sorted({node, other})))),
            GuestNuma(cells),
        ]
    )


def _qemu(each: Guest, chance: random.Random) -> Process:
    """The guest's QEMU with the loads of its threads."""
    threads = tuple(
        replace(thread, load=chance.choice([0.0, 5.0, 50.0, 95.0]))
        for of_target in each.threads_by_target.values()
        for thread in of_target
    )
    load = sum(thread.load for thread in threads)
    return replace(process(each.pid, load, "0", reasons=["guest"]), threads=threads, immovable_reason="guest")
