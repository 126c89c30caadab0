"""pinner host list | show | capacity | interrupts, and the tables about a host."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.output import Cell, Table, cells, cpu_cell, facts, kib, print_json, table
from pinner.cli.frame.parser import Commands, add_command, add_noun
from pinner.cli.frame.values import path, vcpus
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Busy, HostUnreachable, NotPermitted

if TYPE_CHECKING:
    from pinner.model.machine.interrupts import DeviceInterrupts, HostInterrupts
    from pinner.model.machine.topology import Topology
    from pinner.model.questions import Capacity, StrategyCapacity
    from pinner.model.snapshot import Snapshot
    from pinner.service.protocol import Service

MANY_NODES = 4
"""With more nodes, the distances are a table of their own."""


@dataclass(frozen=True, slots=True)
class HostNow:
    """Without libvirt there is a topology and no snapshot."""

    host: str
    topology: "Topology"
    snapshot: "Snapshot | None"
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: "Snapshot") -> "HostNow":
        return cls(snapshot.host, snapshot.topology, snapshot, snapshot.warnings)


def register(commands: Commands) -> None:
    verbs = add_noun(commands, "host", "list the hosts, or show the hardware or the room of a host")
    add_command(verbs, "list", list_hosts, "list the hosts that pinner knows", examples=["pinner host list --json"])
    show = add_command(
        verbs,
        "show",
        show_host,
        "show a host's CPUs, kernel, NUMA nodes and devices",
        about="Where libvirt does not answer, the command warns, and shows the same.",
        examples=[
            "pinner host show",
            "pinner host show compute1 --url http://192.0.2.7:8077",
            "pinner host show --root captured/",
        ],
    )
    show.add_argument("host", metavar="HOST", nargs="?", help="the host's name (default: the only host)")
    show.add_argument(
        "--root",
        metavar="DIR",
        type=path,
        help="show the captured machine in this directory, which contains proc/ and sys/ (see `pinner capture`)",
    )
    _register_capacity(verbs)
    _register_interrupts(verbs)


def list_hosts(context: CommandContext, _arguments: Namespace) -> int:
    with context.open() as pinner:
        hosts = pinner.hosts()
    if context.json:
        print_json({"items": list(hosts), "next": ""})
        return 0
    drawn = table("HOST")
    for host in hosts:
        drawn.add_row(host)
    context.show(drawn)
    return 0


def show_host(context: CommandContext, arguments: Namespace) -> int:
    with context.open(arguments.root) as pinner:
        host_now = observe(pinner, pick_host(pinner, arguments.host), 0)
    for warning in host_now.warnings:
        context.warn(warning)
    show_topology(context, host_now)
    return 0


def show_topology(context: CommandContext, host_now: HostNow) -> None:
    if context.json:
        print_json({"host": host_now.host, "topology": codec.plain(host_now.topology)})
        return
    context.show(summary(host_now), "")
    show_nodes(context, host_now.topology)
    if host_now.topology.devices:
        context.show("", devices(host_now.topology))


def observe(pinner: "Service", host: str, sample_seconds: float, *, complete: bool = False) -> HostNow:
    """Only the topology where libvirt does not answer or refuses, unless ``complete``. Raises HostUnreachable."""
    try:
        return HostNow.of(pinner.observe(host, sample_seconds))
    except (HostUnreachable, NotPermitted, Busy) as error:
        if complete:
            raise
        warning = f"{error}; guests and processes are not shown"
        return HostNow(host, pinner.topology(host), None, (warning,))


def summary(host_now: HostNow) -> Table:
    topology, kernel = host_now.topology, host_now.topology.kernel
    dedicated = host_now.snapshot.dedicated if host_now.snapshot else CpuSet()
    ovs = host_now.snapshot.ovs if host_now.snapshot else None
    sockets = {cpu.socket for cpu in topology.cpus if cpu.socket is not None}
    classes = topology.core_classes
    modules = len(set(topology.online_cores.values()))
    cores = f"{topology.core_count}{f' in {modules} modules' if modules < topology.core_count else ''}"
    governors = {cpu.governor for cpu in topology.cpus if cpu.governor}
    rows: tuple[tuple[str, object], ...] = (
        ("host", host_now.host),
        (
            "CPUs",
            f"{len(topology.online)} online ({topology.online}); cores: {cores}, "
            f"sockets: {len(sockets) or 'unknown'}, L3 domains: {len(topology.l3_domains) or 'unknown'}",
        ),
        ("core classes", f"{'; '.join(map(str, classes))} (fastest first)" if len(classes) > 1 else ""),
        ("clusters", "; ".join(map(str, topology.clusters))),
        ("unequal L3", "; ".join(_unequal_l3(topology))),
        ("offline", topology.offline),
        ("isolated", topology.isolated),
        ("nohz_full", topology.nohz_full),
        ("dedicated by Nova", dedicated),
        ("Open vSwitch (DPDK)", ovs.cpus if ovs else CpuSet()),
        ("governor", ", ".join(sorted(governors))),
        ("kernel", f"{kernel.release or 'unknown'}, cpuset cgroup {kernel.cgroup}"),
        ("command line", kernel.command_line),
    )
    return facts(*rows)


def _unequal_l3(topology: "Topology") -> Iterator[str]:
    for cpus in topology.core_classes:
        yield from (f"{kib(size)} for CPUs {domain}" for size, domain in topology.unequal_l3(cpus))


def show_nodes(context: CommandContext, topology: "Topology") -> None:
    context.show(nodes(topology))
    for matrix in distances(topology, context.out.width) if len(topology.nodes) > MANY_NODES else ():
        context.show("", matrix)


def nodes(topology: "Topology") -> Table:
    few = len(topology.nodes) <= MANY_NODES
    headers = ("NODE", "CPUS", "MEMORY", "FREE", "HUGEPAGES (FREE)", *(["DISTANCES"] if few else []))
    drawn = table(*headers, right=("NODE", "MEMORY", "FREE"), whole=("CPUS", "MEMORY", "FREE"))
    for node in topology.nodes:
        pages = ", ".join(f"{p.total} ({p.free}) of {kib(p.size_kib)}" for p in node.hugepages if p.total)
        row = " ".join(f"{other}:{distance}" for other, distance in sorted(node.distances.items()))
        drawn.add_row(
            node.id,
            cpu_cell(node.cpus or "no CPUs"),
            kib(node.memory_kib) if node.memory_kib else "no memory",
            kib(node.free_kib) if node.memory_kib else "",
            pages or "none",
            *([row or "no table"] if few else []),
        )
    return drawn


def distances(topology: "Topology", width: int) -> Iterator[Table]:
    """A row for each node; several tables where one is wider than ``width`` columns."""
    ids = [node.id for node in topology.nodes]
    cells_of = {node.id: [str(node.distances.get(other, "-")) for other in ids] for node in topology.nodes}
    cell = max(len(text) for text in (*map(str, ids), *(text for row in cells_of.values() for text in row)))
    fit = max(1, (width - len("DISTANCE")) // (cell + 2) - 1)
    for first in range(0, len(ids), fit):
        names = [str(other) for other in ids[first : first + fit]]
        drawn = table("DISTANCE", *names, right=("DISTANCE", *names), whole=("DISTANCE", *names))
        for node, row in cells_of.items():
            drawn.add_row(node, *row[first : first + fit])
        yield drawn


def devices(topology: "Topology") -> Table:
    drawn = table("DEVICE", "KIND", "NODE", "DESCRIPTION")
    for device in topology.devices:
        node = "unknown" if device.node is None else device.node
        drawn.add_row(device.name, device.kind, node, device.description)
    return drawn


_FREE = "FREE VCPUS"


def _register_capacity(verbs: Commands) -> None:
    parser = add_command(
        verbs,
        "capacity",
        show_capacity,
        "show how many more guests fit a host",
        about="By strategy, NUMA node and number of vCPUs. The guests fit beside the\n"
        "present ones: no vCPU would share a CPU, and no placed guest would move.",
        examples=["pinner host capacity", "pinner host capacity compute1 --vcpus 4 --json"],
    )
    parser.add_argument("host", metavar="HOST", nargs="?", help="the host's name (default: the only host)")
    parser.add_argument("--vcpus", metavar="N", type=vcpus, help="only guests of N vCPUs (default: 1, 2, 4 and so on)")


def show_capacity(context: CommandContext, arguments: Namespace) -> int:
    with context.open() as pinner:
        capacity = pinner.capacity(pick_host(pinner, arguments.host), arguments.vcpus)
    if context.json:
        print_json(codec.plain(capacity))
        return 0
    rows = (("host", capacity.host), ("strategy", capacity.strategy), ("policy", capacity.mode or "none"))
    context.show(facts(*rows), "", rooms(capacity))
    for strategy in capacity.strategies:
        if strategy.why:
            context.out.print(*cells(f"{strategy.strategy}: no guest can be placed: {strategy.why}"), soft_wrap=True)
    return 0


def rooms(capacity: "Capacity") -> Table:
    sizes = sorted({size for strategy in capacity.strategies for size in strategy.guests})
    of_size = [f"{size} VCPU{'S' if size > 1 else ''}" for size in sizes]
    drawn = table("STRATEGY", "NODE", "CPUS", _FREE, *of_size, right=(_FREE, *of_size), whole=("STRATEGY", "CPUS"))
    for strategy in capacity.strategies:
        for row in _room_rows(strategy, sizes):
            drawn.add_row(*row)
    return drawn


def _room_rows(strategy: "StrategyCapacity", sizes: list[int]) -> Iterator[list[Cell]]:
    for node in strategy.nodes:
        name = "unknown" if node.node is None else node.node
        numbers = (node.guests[size] for size in sizes)
        yield cells(strategy.strategy, name, cpu_cell(node.cpus or "no CPUs"), node.free_vcpus, *numbers)
    yield cells(strategy.strategy, "all", "", strategy.free_vcpus, *(strategy.guests[size] for size in sizes))


def _register_interrupts(verbs: Commands) -> None:
    parser = add_command(
        verbs,
        "interrupts",
        show_interrupts,
        "show the interrupts of a host's devices, their CPUs and the roles of these",
        about="By device and NUMA node, with the NAPI threads of network interfaces. `pinner\n"
        "check` says which of them hurt guests.",
        examples=["pinner host interrupts", "pinner host interrupts compute1 --json"],
    )
    parser.add_argument("host", metavar="HOST", nargs="?", help="the host's name (default: the only host)")
    parser.add_argument(
        "--root", metavar="DIR", type=path, help="show the captured machine in this directory (see `pinner capture`)"
    )


def show_interrupts(context: CommandContext, arguments: Namespace) -> int:
    with context.open(arguments.root) as pinner:
        listed = pinner.interrupts(pick_host(pinner, arguments.host))
    if context.json:
        print_json(codec.plain(listed))
    elif listed.devices:
        context.show(interrupts(listed))
    else:
        context.show("no interrupts of devices are known")
    return 0


def interrupts(listed: "HostInterrupts") -> Table:
    drawn = table("DEVICE", "NODE", "NUMBER", "NAME", "CPUS", "ROLES", "LOCAL", right=("NUMBER",), whole=("DEVICE",))
    for device in listed.devices:
        for row in _interrupt_rows(device):
            drawn.add_row(*row)
    return drawn


def _interrupt_rows(device: "DeviceInterrupts") -> Iterator[list[Cell]]:
    label = device.interface or device.device
    node = "unknown" if device.node is None else device.node
    for interrupt in device.interrupts:
        roles = ", ".join(
            f"{role.role} {role.cpus}" if len(interrupt.roles) > 1 else role.role for role in interrupt.roles
        )
        local = {True: "yes", False: "no", None: "unknown"}[interrupt.is_local]
        name = f"{interrupt.name} (managed)" if interrupt.managed else interrupt.name
        yield cells(label, node, interrupt.number, name, cpu_cell(interrupt.cpus or "none"), roles, local)
