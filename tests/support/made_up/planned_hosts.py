"""Snapshots of the generated hosts: their hardware, guests, processes and settings, all by the seed.

The guests have the sizes of support/made_up/generated_hosts.py. Every part of a snapshot that a plan reads differs
between hosts: memory, cells, pins, Nova's sets, restricted processes, interrupts, queues, governors.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

from support.hosts import GIB, KERNEL, cpus, guest, process, snapshot, topology, with_caches
from support.made_up.generated_hosts import GeneratedHost

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Cgroup, Guest, NovaIdentity, OperatorPin, PartitionState
from pinner.model.guest.guest_numa import GuestCell, GuestNuma, MemoryBinding
from pinner.model.guest.nova import NovaConf
from pinner.model.machine.interrupts import Balancer, DeviceIrq, DeviceIrqs
from pinner.model.machine.process import Process
from pinner.model.machine.topology import Device, FrequencyDomain, Topology
from pinner.model.settings.cards import CardQueues, RpsQueue, RxCoalescing, RxRing
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.model.settings.power import WakeLimit
from pinner.model.snapshot import Snapshot
from pinner.model.states import Governor, Word

SPECS = (
    {},
    {},
    {"pinner:excluded": "true"},
    {"pinner:excluded": "maybe"},
    {"pinner:strategy": "numa-local"},
    {"pinner:strategy": "shared-pool"},
    {"pinner:strategy": "isolated"},
    {"hw:cpu_max": "4"},
)
"""Extra specs of flavors."""


def host_of(made_up: GeneratedHost) -> Snapshot:
    """The host with a part of its guests running anywhere, and the rest on the CPUs of one node."""
    chance = random.Random(f"{made_up.seed} {made_up.friendly}")
    top = _topology(made_up, chance)
    free = {node.id: union(CpuSet(core.free) for d in node.domains for core in d.cores) for node in made_up.nodes}
    dedicated = chance.choice([CpuSet()] * 4 + [union(free.values())])
    guests = list(_guests(made_up, top, free, chance))
    facts = {
        "guests": tuple(guests),
        "processes": tuple(_processes(top, chance)),
        "dedicated": dedicated,
        "shared": top.online - dedicated if dedicated and chance.random() < 0.5 else CpuSet(),
        "nova": NovaConf(("/etc/nova/nova.conf",), dedicated=str(dedicated)) if dedicated else None,
        "minimum_cores": chance.choice([1, 1, 2]),
        "weights": chance.choice([{}, {}, {"moved_threads": 4.0, "extra_l3": 2.0}]),
        "boot": "00000000-0000-4000-8000-b00000000000",
    }
    found = replace(snapshot(top), **facts)
    return replace(found, **_settings(found, chance)) if chance.random() < 0.5 else found


def newcomers(made_up: GeneratedHost, host: Snapshot, count: int) -> tuple[Guest, ...]:
    """Guests that start later."""
    chance = random.Random(f"{made_up.seed} {made_up.friendly} later")
    sizes = [chance.choice([2, 4, 8]) for _ in range(count)]
    return tuple(guest(900 + number, size, host.topology.online) for number, size in enumerate(sizes))


def _topology(made_up: GeneratedHost, chance: random.Random) -> Topology:
    cores, every = made_up.cpus // 2 // len(made_up.nodes), made_up.cpus // 2
    smt = chance.random() < 0.8
    nodes = {
        node: [[core, core + every] if smt else [core] for core in range(node * cores, (node + 1) * cores)]
        for node in range(len(made_up.nodes))
    }
    l3 = len(made_up.nodes[0].domains[-1].cores)
    domains = [list(block[first : first + l3]) for block in nodes.values() for first in range(0, cores, l3)]
    free = union(CpuSet(core.free) for node in made_up.nodes for domain in node.domains for core in domain.cores)
    there = CpuSet.of(cpu for block in nodes.values() for core in block for cpu in core)
    top = topology(
        nodes,
        offline=chance.choice(["", "", "", str(max(there))]),
        isolated=str(free & there) if chance.random() < 0.4 else "",
        kernel=replace(KERNEL, unbound=there, cgroup=chance.choice(["v2", "v2", "v1"])),
        memory_kib=chance.choice([64, 256, 1024]) * GIB,
        devices=tuple(
            device
            for node in range(len(made_up.nodes))
            for device in (
                Device("pci", f"0000:{node:02x}:00.0", node, "ixgbe"),
                Device("net", f"eth{node}", node, "ixgbe"),
            )
        ),
    )
    return with_caches(top, *(str(CpuSet.of(cpu for core in domain for cpu in core)) for domain in domains))


def _guests(made_up: GeneratedHost, top: Topology, free: dict[int, CpuSet], chance: random.Random) -> Iterator[Guest]:
    dedicating = chance.random() < 0.2
    for number, packed in enumerate(made_up.guests):
        node = chance.choice(list(free))
        floor = chance.choice([top.online, top.online, top.online & free[node]])
        memory = chance.choice([{node: 2 * GIB}, {node: GIB, 0: GIB}, {0: 2 * GIB}])
        pins = [str(cpu) for cpu in [*(free[node] & top.online)][: packed.size]]
        dedicated = dedicating and chance.random() < 0.2 and len(pins) == packed.size
        yield guest(
            number,
            packed.size,
            floor,
            pins=pins if dedicated else (),
            memory=memory,
            iothreads=chance.choice([0, 0, 1]),
            vhost_threads=chance.choice([0, 0, 1, 2]),
            unplugged=chance.choice([0, 0, 0, 1]),
            policy=chance.choice(["", "", "isolate", "share"]) if dedicated else "",
            dedicated=dedicated,
            nova=NovaIdentity("i", "p", "u", "m1", chance.choice(SPECS)) if chance.random() < 0.3 else None,
            numa=_numa(packed.size, node, chance),
            pci=(f"0000:{node:02x}:00.0",) if chance.random() < 0.1 else (),
            excluded=chance.random() < 0.03,
            leaving=chance.random() < 0.03,
            persistent=chance.random() < 0.5,
            operator_pins=_operator_pins(free[node], chance),
            cgroups=_cgroups(number, top),
        )


def _operator_pins(free: CpuSet, chance: random.Random) -> tuple[OperatorPin, ...]:
    return (OperatorPin("vcpu", 0, free, "live"),) if chance.random() < 0.04 else ()


def _cgroups(number: int, top: Topology) -> tuple[Cgroup, ...]:
    if top.kernel.cgroup != "v2":
        return ()
    scope = f"machine.slice/machine-qemu\\x2d{number}\\x2dg{number}.scope"
    return tuple(Cgroup(path, PartitionState("member", CpuSet())) for path in ("machine.slice", scope))


def _numa(size: int, node: int, chance: random.Random) -> GuestNuma:
    half = CpuSet.of(range(size // 2))
    cells = (GuestCell(0, half, GIB), GuestCell(1, CpuSet.of(range(size)) - half, GIB))
    return chance.choice(
        [
            *[GuestNuma()] * 8,
            GuestNuma(memory=MemoryBinding("strict", (node,))),
            GuestNuma(memory=MemoryBinding("preferred", (node,))),
            GuestNuma(huge_kib={node: 2 * GIB}, page_kib=2048),
            GuestNuma(cells),
            GuestNuma(cells, memory=MemoryBinding("strict", (0, node))),
        ]
    )


def _processes(top: Topology, chance: random.Random) -> Iterator[Process]:
    every, narrow = str(top.online), str(CpuSet.of([min(top.online), max(top.online)]))
    for number in range(chance.randint(2, 8)):
        masks = [every] * chance.randint(1, 3)
        yield process(300 + 10 * number, chance.choice([0.0, 3.0, 150.0, 900.0]), *masks, name=f"daemon{number}")
    reserves = chance.choice(["", "privileged", "configured", "worked"])
    yield process(700, chance.choice([0.0, 30.0]), narrow, reasons=["restricted"], reserves=reserves, name="own")
    if chance.random() < 0.1:
        polling = process(800, 200.0, every, every, name="poll")
        yield replace(polling, threads=tuple(replace(thread, realtime="fifo") for thread in polling.threads))


def _settings(host: Snapshot, chance: random.Random) -> dict[str, object]:
    """The settings that a plan with remedies reads."""
    top, nodes = host.topology, len(host.topology.nodes)
    some = [CpuSet.of([cpu]) for cpu in chance.sample(sorted(top.online), 16)]
    cards = [f"eth{node}" for node in range(nodes)]
    irqs = tuple(
        DeviceIrq(30 + i, f"{cards[i % nodes]}-rx-{i}", f"0000:{i % nodes:02x}:00.0", mask, mask, i == 3)
        for i, mask in enumerate(some)
    )
    balancers = (Balancer(77, "--foreground", CpuSet(), 7, CpuSet()),) if chance.random() < 0.5 else ()
    queues = tuple(GuestQueue("ens3", 2, queue, CpuSet()) for queue in range(1))
    governors = [Governor(chance.choice(["powersave", "performance"])) for _ in top.cpus]
    return {
        "irqs": DeviceIrqs(irqs, balancers),
        "rps": tuple(RpsQueue(card, 2, 0, chance.choice([CpuSet(), top.online])) for card in cards),
        "sysctls": {"kernel.numa_balancing": 1, "vm.swappiness": 60, "net.core.somaxconn": 128},
        "rings": tuple(RxRing(card, 2, 256, 4096, chance.random() < 0.5) for card in cards),
        "governors": tuple(
            FrequencyDomain(cpu.id, cpus(str(cpu.id)), name) for cpu, name in zip(top.cpus, governors, strict=True)
        ),
        "resume_latency": tuple(WakeLimit(cpu.id, Word("0"), 133) for cpu in top.cpus),
        "coalescing": tuple(RxCoalescing(card, 2, 0, 1, False, chance.choice([0.0, 90_000.0])) for card in cards),
        "irqbalance": balancers,
        "queues": tuple(CardQueues(card, 2, 1, 16) for card in cards),
        "guest_rps": tuple(
            GuestRps(each.uuid, each.name, "boot", CpuSet.of(each.plugged), queues) for each in host.guests[:3]
        ),
        "cpu_weights": {"machine.slice": chance.choice([100, 100, 400])},
    }
