"""Random hosts with faults of placement, by seed: guests anywhere, sets of Nova, isolation, migrations, limits, a
switch, squeezed or polling processes, and interrupts."""

import random
from collections.abc import Iterator
from dataclasses import replace

from support.hosts import GIB, KERNEL, guest, interleaved, plain, process
from support.made_up.readings import CARD, DISK, Interrupt, Seen, irq, reading

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest, NovaIdentity
from pinner.model.guest.nova import NovaConf
from pinner.model.machine.interrupts import Balancer
from pinner.model.machine.process import CpuLimit, Process, Thread
from pinner.model.machine.topology import Device, Topology
from pinner.model.reading import HostReading
from pinner.model.snapshot import OvsDpdk, OvsMasks

NOVA = NovaIdentity("i-1", "p-1", "u-1", "m1")


def remedied_host(seed: int, machine: Topology | None = None) -> HostReading:
    """``machine``: its topology instead of a random one."""
    chance, more = random.Random(seed), random.Random(f"interrupts {seed}")
    top = machine or _topology(chance)
    ids = sorted(top.online)
    count = len(ids)
    shared = chance.choice([CpuSet(), CpuSet(), *(CpuSet.of(ids[first:]) for first in (2, 4, count // 2))])
    dedicated = _some(chance, top.online - shared, chance.choice([0, 2, 4])) if chance.random() < 0.5 else CpuSet()
    switch = _some(chance, top.online, 2) if chance.random() < 0.2 else CpuSet()
    guests = [_guest(number, chance, top, shared) for number in range(1, chance.randint(2, 4))]
    processes = tuple(_processes(chance, top.online))
    irqs = [*_interrupts(more, top.online)]
    return reading(
        Seen(irqs=tuple(irqs)),
        Seen(irqs=tuple(replace(each, counts=dict.fromkeys(each.counts, 3000)) for each in irqs)),
        guests,
        top,
        processes=processes,
        shared=shared,
        dedicated=dedicated,
        nova=_conf(more, shared, dedicated),
        ovs=OvsDpdk(OvsMasks(pmd=switch)) if switch else None,
        irqbalance=(Balancer(700, "", None, banned_now=_some(more, top.online, 2)),) if more.random() < 0.3 else (),
    )


def _some(chance: random.Random, cpus: CpuSet, count: int) -> CpuSet:
    return CpuSet.of(chance.sample(sorted(cpus), min(count, len(cpus))))


def _topology(chance: random.Random) -> Topology:
    last = chance.choice([7, 15])
    alone = chance.choice(["", "", f"{last - 3}-{last}"])
    line = chance.choice(["quiet", f"isolcpus={alone} irqaffinity=0-{last}", f"nohz_full=1-{last}"]) if alone else ""
    facts = {
        "isolated": alone,
        "nohz_full": f"1-{last}" if "nohz_full" in line else "",
        "kernel": replace(KERNEL, command_line=line, unbound=CpuSet.of(range(last + 1))),
        "devices": (Device("pci", CARD, chance.choice([0, 1])),),
    }
    count = last + 1
    return chance.choice([interleaved(count // 2, **facts), plain(count, 2, **facts), plain(count, 1, **facts)])


def _interrupts(chance: random.Random, online: CpuSet) -> Iterator[Interrupt]:
    """Those of a card; and of a disk with a queue for each CPU, which the kernel places."""
    for number in range(40, 40 + chance.choice([0, 0, 2, 4])):
        mask = _some(chance, online, chance.choice([1, 2]))
        yield irq(number, str(mask), dict.fromkeys(mask, 10))
    for number, cpu in enumerate(online if chance.random() < 0.5 else (), start=1):
        yield irq(90 + number, str(cpu), {cpu: 10}, DISK, name=f"nvme0q{number}")


def _conf(chance: random.Random, shared: CpuSet, dedicated: CpuSet) -> NovaConf | None:
    if not shared | dedicated or chance.random() < 0.3:
        return None
    if not dedicated and chance.random() < 0.5:
        return NovaConf((), pin_set=str(shared))
    return NovaConf((), shared=str(shared), dedicated=str(dedicated))


def _guest(number: int, chance: random.Random, top: Topology, shared: CpuSet) -> Guest:
    vcpus = chance.choice([1, 2, 4])
    floors = [top.online, shared or top.online, _some(chance, top.online, 4), top.nodes[-1].cpus]
    floor = chance.choice(floors)
    limit = (CpuLimit("machine.slice", floor),) if floor != top.online and chance.random() < 0.3 else ()
    within = floor if limit else top.online
    pins = [str(_some(chance, within, chance.choice([1, 2]))) for _ in range(vcpus)] if chance.random() < 0.5 else ()
    made = guest(
        number,
        vcpus,
        floor,
        pins=pins,
        memory={chance.choice(top.nodes).id: 2 * GIB},
        nova=NOVA if shared and chance.random() < 0.8 else None,
        pci=(CARD,) if chance.random() < 0.3 else (),
        cpu_limits=limit,
    )
    if chance.random() < 0.8:
        return made
    sending = tuple(Thread(9000 + 100 * number + n, 7, f"multifdsend_{n}", floor) for n in range(4))
    return replace(made, emulator=replace(made.emulator, threads=made.emulator.threads + sending))


def _processes(chance: random.Random, online: CpuSet) -> list[Process]:
    mask = str(_some(chance, online, 1))
    squeezed = chance.choice([0, 0, 2, 3])
    daemons = [process(900 + 10 * n, 99.0, mask, name="ceph-osd", reasons=["restricted"]) for n in range(squeezed)]
    own = str(_some(chance, online, 1))
    polling = process(800, 100.0, own, name="spdk_tgt", reasons=["restricted"], reserves="privileged")
    kernels = [replace(process(60, 0.0, str(online), name="khugepaged"), kernel=True)]
    return [*daemons, *([polling] if chance.random() < 0.3 else []), *(kernels if chance.random() < 0.3 else [])]
