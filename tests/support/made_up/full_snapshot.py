"""A snapshot in which every field has a value, and the places of the numbers in its JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from support.hosts import GIB, cpus, guest, interleaved, process, snapshot, with_caches

from pinner.model.change import PartPin
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Cgroup, OperatorPin, Tap
from pinner.model.guest.guest_numa import GuestCell, GuestNuma, GuestTopology, MemoryBinding
from pinner.model.guest.nova import NovaConf
from pinner.model.machine.interrupts import Balancer, DeviceIrq, DeviceIrqs
from pinner.model.machine.process import CpuLimit, CpuQuota, Process, Thread
from pinner.model.machine.topology import Cache, Device, FrequencyDomain, HugePages, Topology
from pinner.model.settings.cards import CardQueues, RpsQueue, RxCoalescing, RxRing
from pinner.model.settings.inside import FlowQueue, GuestIrq, GuestIrqs, GuestQueue, GuestRfs, GuestRps, GuestSysctls
from pinner.model.settings.power import EnergyDomain, WakeLimit
from pinner.model.snapshot import Snapshot
from pinner.model.states import Governor, PartitionState, Word

CARD = "0000:3b:00.0"
ALL = cpus("0-15")
NUMBERS = (int, float, datetime)


def full_snapshot() -> Snapshot:
    """Two nodes of eight CPUs: three guests, of which one has cells and one pins of an operator, a busy process, one
    with a restricted affinity, and every setting."""
    balancer = Balancer(99, "--foreground", cpus("3"), 5, cpus("3"))
    taken = snapshot(
        _topology(),
        [_cells(), guest(2, 2, ALL, operator_pins=(OperatorPin("vcpu", 0, cpus("1"), "live"),)), guest(3, 2, ALL)],
        [process(300, 150.0, str(ALL)), process(310, 1.0, "0-1", reasons=["restricted"], reserves="worked")],
        nova=NovaConf(("/etc/nova/nova.conf",), reserved_cpus=1, process=77),
        weights={"extra_l3": 2.0},
        irqs=DeviceIrqs((DeviceIrq(30, "ens1-0", CARD, ALL, cpus("1")),), (balancer,)),
        rps=(RpsQueue("ens1", 2, 0, cpus("0-3")),),
        sysctls={"net.core.somaxconn": 128, "vm.swappiness": 60},
        rings=(RxRing("ens1", 2, 256, 4096, has_dropped=True),),
        governors=(FrequencyDomain(0, cpus("0"), Governor("powersave")),),
        epp=(EnergyDomain(0, cpus("0"), Word("balance_performance"), ("performance",), "powersave"),),
        resume_latency=(WakeLimit(0, Word("0"), 133),),
        coalescing=(RxCoalescing("ens1", 2, 0, 0, is_adaptive=False, rate=60_000.0),),
        irqbalance=(balancer,),
        queues=(CardQueues("ens1", 2, 1, 8),),
        guest_rps=(GuestRps(guest(1, 2, ALL).uuid, "g1", "b", cpus("0-1"), (GuestQueue("eth0", 2, 0, cpus("0")),)),),
        guest_rfs=(GuestRfs(guest(1, 2, ALL).uuid, "g1", "b", 4096, (FlowQueue("eth0", 2, 0, 0),)),),
        guest_irqs=(
            GuestIrqs(
                guest(1, 2, ALL).uuid, "g1", "b", cpus("0-1"), (GuestIrq(27, "virtio0-input.0", "eth0", 2, 0, ALL),)
            ),
        ),
        guest_sysctls=(GuestSysctls(guest(1, 2, ALL).uuid, "g1", "b", {"net.core.rmem_max": 212_992}, 3),),
        cpu_weights={"machine.slice": 100},
    )
    return _with_times(taken)


def _topology() -> Topology:
    devices = (Device("pci", CARD, 1), Device("net", "ens1", 1, CARD))
    top = with_caches(interleaved(8, devices=devices), "0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15")
    return replace(
        top,
        caches=(Cache(3, 1024, ALL),),
        cpus=tuple(replace(cpu, die=0) for cpu in top.cpus),
        nodes=tuple(replace(node, hugepages=(HugePages(2048, 10, 5),)) for node in top.nodes),
    )


def _cells() -> Any:
    strict, shared = MemoryBinding("strict", (0,)), cpus("0,2")
    return guest(
        1,
        2,
        ALL,
        memory={0: GIB, 1: GIB},
        iothreads=1,
        vhost_threads=1,
        taps=(Tap("tap1", "52:54:00:00:00:01", 1, 2, 3, 4),),
        pci=(CARD,),
        topology=GuestTopology(1, 2, 2),
        numa=GuestNuma(
            (GuestCell(0, cpus("0-1"), GIB, strict),), strict, {0: GIB}, {0: shared, 1: shared}, page_kib=2048
        ),
        own_pins=(PartPin("vcpu", 0, cpus("1")),),
        cgroups=(Cgroup("/machine.slice/g1", PartitionState("member", CpuSet())),),
        cpu_limits=(CpuLimit("machine.slice", cpus("0-15")),),
        quotas={"vcpu_quota": CpuQuota(50_000, 100_000)},
    )


def _with_times(value: Any) -> Any:
    """With the times of each thread, and the user of each process."""
    match value:
        case Thread():
            return replace(value, load=50.0, run_ns=5, delay_ns=6)
        case tuple():
            return tuple(map(_with_times, value))
        case CpuSet():
            return value
    if not is_dataclass(value) or isinstance(value, type):
        return value
    user = {"user": 1000} if isinstance(value, Process) else {}
    return replace(value, **{each.name: _with_times(getattr(value, each.name)) for each in fields(value)} | user)


class Place(NamedTuple):
    field: str
    """The names of fields from the snapshot on; [] for an item, {} for a value by its key, {key} for the key."""
    path: tuple[str | int, ...]
    """To the number in JSON; to the value, for a key."""
    kind: type


def number_fields(kind: Any) -> set[str]:
    """The fields of all numbers and times below a type."""
    if kind in NUMBERS:
        return {""}
    if get_origin(kind) is None:
        return {f".{name}{field}" for name, each in _hints(kind).items() for field in number_fields(each)}
    steps = {tuple: ("[]", ""), Mapping: ("{key}", "{}")}.get(get_origin(kind), ("", ""))
    return {
        f"{step}{field}" for step, each in zip(steps, get_args(kind), strict=False) for field in number_fields(each)
    }


def places(kind: Any, value: Any, field: str = "", path: tuple[str | int, ...] = ()) -> Iterator[Place]:
    """Every number and time of a value in JSON."""
    for step, name, each, part in _parts(kind, value):
        if each in NUMBERS:
            yield Place(f"{field}{step}", (*path, *name), each)
        else:
            yield from places(each, part, f"{field}{step}", (*path, *name))


def _parts(kind: Any, value: Any) -> Iterator[tuple[str, tuple[str | int, ...], Any, Any]]:
    """Step, its name in JSON, type and value of each part."""
    first, *others = get_args(kind) or (kind,)
    match value:
        case list() if get_origin(kind) is tuple:
            yield from (("[]", (number,), first, item) for number, item in enumerate(value))
        case dict() if get_origin(kind) is Mapping:
            yield from (("{key}", (key,), first, key) for key in value)
            yield from (("{}", (key,), others[0], item) for key, item in value.items())
        case dict() if get_origin(kind) is None:
            yield from ((f".{name}", (name,), each, value.get(name)) for name, each in _hints(kind).items())
        case value if value is not None and get_origin(kind) in (Union, UnionType):
            yield from (("", (), each, value) for each in get_args(kind) if each is not NoneType)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields; none of another type, and of CpuSet, which is a text in JSON."""
    if not is_dataclass(kind) or kind is CpuSet:
        return {}
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind)}
