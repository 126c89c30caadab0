"""A host as lines of text: nodes, L3 domains, cores and their CPUs, each with the letter of its role. Pure."""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat, zip_longest
from typing import TYPE_CHECKING

from rich.text import Text

from pinner.cli.frame.output import folded, kib
from pinner.model.cpuset import CpuSet, union
from pinner.model.page import batches
from pinner.render import visible

if TYPE_CHECKING:
    from pinner.model.machine.process import Thread
    from pinner.model.machine.topology import Cache, Cpu, Device, Node, Topology
    from pinner.model.plan.plan import Plan
    from pinner.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Role:
    letter: str
    name: str
    style: str


HOUSEKEEPING = Role("H", "housekeeping", "black on cyan")
EMULATOR = Role("E", "emulator", "black on yellow")
VCPU = Role("V", "vCPU", "black on green")
ISOLATED = Role("I", "isolated", "white on blue")
DEDICATED = Role("D", "dedicated by Nova", "white on magenta")
OFFLINE = Role("x", "offline", "dim")
UNUSED = Role(".", "unused", "default")
ORDER = (HOUSEKEEPING, EMULATOR, VCPU, ISOLATED, DEDICATED, UNUSED, OFFLINE)

Uses = Mapping[int, Role]
"""The role of every CPU, by its id."""


def shared(roles: Iterable[Role]) -> Role:
    return Role("*", " + ".join(role.name for role in ORDER if role in roles), "white on red")


def uses_now(snapshot: "Snapshot", busy_threshold: float) -> Uses:
    """By present affinities of busy processes, emulator threads, vCPUs. ``busy_threshold``: per cent of one CPU."""
    busy = (
        thread for p in snapshot.processes if not p.immovable_reason and p.load > busy_threshold for thread in p.threads
    )
    guests = [guest for guest in snapshot.guests if not guest.dedicated]
    emulators = (thread for guest in guests for thread in (*guest.emulator.threads, *guest.vhost_threads))
    vcpus = (vcpu.thread for guest in guests for vcpu in guest.vcpus if vcpu.thread)
    sets = {
        HOUSEKEEPING: _affinity(thread for thread in busy if not thread.immovable_reason),
        EMULATOR: _affinity(emulators),
        VCPU: _affinity(vcpus),
    }
    return _paint(snapshot.topology, sets, snapshot.topology.isolated, _dedicated(snapshot))


def uses_unknown(topology: "Topology") -> Uses:
    return _paint(topology, {}, topology.isolated, CpuSet())


def uses_planned(snapshot: "Snapshot", plan: "Plan") -> Uses:
    wanted = plan.isolation.wanted if plan.isolation else CpuSet()
    sets = {HOUSEKEEPING: plan.roles.housekeeping, EMULATOR: plan.roles.emulator, VCPU: plan.roles.vcpu - wanted}
    return _paint(snapshot.topology, sets, snapshot.topology.isolated | wanted, _dedicated(snapshot))


def _affinity(threads: Iterable["Thread"]) -> CpuSet:
    return union({thread.affinity for thread in threads})


def _dedicated(snapshot: "Snapshot") -> CpuSet:
    pinned = (vcpu.thread.affinity for g in snapshot.guests if g.dedicated for vcpu in g.vcpus if vcpu.thread)
    return snapshot.dedicated | union(pinned)


def _paint(topology: "Topology", sets: Mapping[Role, CpuSet], isolated: CpuSet, dedicated: CpuSet) -> Uses:
    painted = {}
    for cpu in topology.cpus:
        roles = [role for role, cpus in sets.items() if cpu.id in cpus]
        if not cpu.online:
            painted[cpu.id] = OFFLINE
        elif len(roles) > 1:
            painted[cpu.id] = shared(roles)
        elif roles:
            painted[cpu.id] = roles[0]
        elif cpu.id in dedicated:
            painted[cpu.id] = DEDICATED
        else:
            painted[cpu.id] = ISOLATED if cpu.id in isolated else UNUSED
    return painted


GAP = 3
SIDE_BY_SIDE = 50
"""The least width of a drawing beside another one."""
INDENT = "  "


def drawing(topology: "Topology", views: Sequence[tuple[str, Uses]], width: int) -> list[Text]:
    share = (width - GAP * (len(views) - 1)) // len(views)
    if len(views) > 1 and share >= SIDE_BY_SIDE:
        columns = [_view(topology, title, uses, share) for title, uses in views]
        widths = [max(line.cell_len for line in column) + GAP for column in columns]
        return [_side_by_side(lines, widths) for lines in zip_longest(*columns, fillvalue=Text())]
    return [
        line
        for number, (title, uses) in enumerate(views)
        for line in ([Text()] if number else []) + _view(topology, title, uses, width)
    ]


def _side_by_side(lines: Sequence[Text], widths: Sequence[int]) -> Text:
    joined = Text()
    for line, width in zip(lines, widths, strict=True):
        joined.append_text(line).append(" " * (width - line.cell_len))
    joined.rstrip()
    return joined


def _view(topology: "Topology", title: str, uses: Uses, width: int) -> list[Text]:
    lines = [Text(visible(title), style="bold underline")]
    memory_nodes = memory_only(topology)
    beside = {node.id for group in memory_nodes.values() for _, node in group}
    for node in topology.nodes:
        if node.id in beside:
            continue
        cpus = [cpu for cpu in topology.cpus if cpu.node == node.id]
        # No empty lines between nodes without CPUs: a machine may have dozens of them.
        gap = [Text()] if cpus or topology.nodes[0] is node or lines[-1].plain.startswith(INDENT) else []
        lines += [*gap, _heading(node, bool(cpus)), *_domains(topology, cpus, uses, width)]
        lines += _details(topology, node, width)
        for distance, other in memory_nodes.get(node.id, ()):
            lines.append(Text(INDENT).append_text(_heading(other, populated=False)).append(f", distance {distance}"))
            lines += _details(topology, other, width)
    without_node = [cpu for cpu in topology.cpus if cpu.node is None]
    if without_node:
        lines += [Text(), Text("no node", style="bold"), *_domains(topology, without_node, uses, width)]
    return [*lines, Text(), *_legend(topology, uses, width)]


def _details(topology: "Topology", node: "Node", width: int) -> list[Text]:
    return [Text(f"{INDENT}{line}", style="dim") for line in details(topology, node, width - len(INDENT))]


def _heading(node: "Node", populated: bool) -> Text:
    memory = f"{kib(node.memory_kib)}, {kib(node.free_kib)} free" if node.memory_kib else "no memory"
    return Text().append(f"node {node.id}", style="bold").append(f"  {memory}{'' if populated else ', no CPUs'}")


def _domains(topology: "Topology", cpus: Sequence["Cpu"], uses: Uses, width: int) -> list[Text]:
    """Blocks are in the order of their first CPUs, side by side if they fit into ``width`` columns."""
    domains: dict[tuple[int | None, int | None, int | None], list[Cpu]] = defaultdict(list)
    for cpu in sorted(cpus, key=lambda cpu: cpu.id):
        domains[cpu.socket, cpu.die, cpu.l3].append(cpu)
    if not domains:
        return []
    many_dies = len({(cpu.socket, cpu.die) for cpu in topology.cpus}) > len({cpu.socket for cpu in topology.cpus})
    labels = [_label(members, many_dies) for members in domains.values()]
    indent = max(len(label) for label in labels) + 2 * len(INDENT)
    id_width = len(str(max(cpu.id for cpu in topology.cpus)))
    threaded = any(len(cpu.siblings) > 1 for cpu in topology.cpus)
    blocks = []
    for label, members in zip(labels, domains.values(), strict=True):
        cores = [_core(core, uses, id_width, threaded) for core in _cores(members)]
        starts = chain([Text().append(f"{INDENT}{label}".ljust(indent), style="dim")], repeat(Text(" " * indent)))
        blocks.append([start + line for start, line in zip(starts, _wrap(cores, width - indent), strict=False)])
    return _flow(blocks, width)


def _flow(blocks: Sequence[Sequence[Text]], width: int) -> list[Text]:
    lines = [line for block in blocks for line in block]
    widest = max(line.cell_len for line in lines)
    columns = width // widest
    if columns < 2 or len(lines) > len(blocks):
        return lines
    return [_side_by_side(row, [widest] * len(row)) for row in batches(lines, columns)]


def _label(members: Sequence["Cpu"], many_dies: bool) -> str:
    cpu = members[0]
    parts = [("socket", cpu.socket), ("die", cpu.die if many_dies else None), ("L3", cpu.l3)]
    known = " ".join(f"{name} {number}" for name, number in parts if number is not None)
    return known or ("unknown place" if any(cpu.online for cpu in members) else "offline")


def _cores(cpus: Iterable["Cpu"]) -> list[list["Cpu"]]:
    """The kernel reports no siblings of an offline CPU, which is a group of its own."""
    cores: dict[CpuSet, list[Cpu]] = defaultdict(list)
    for cpu in cpus:
        cores[cpu.siblings or CpuSet.of([cpu.id])].append(cpu)
    return list(cores.values())


def _core(threads: Sequence["Cpu"], uses: Uses, id_width: int, bracketed: bool) -> Text:
    core = Text("[" if bracketed else "")
    for number, cpu in enumerate(threads):
        role = uses[cpu.id]
        core.append(" " if number else "").append(f"{cpu.id:>{id_width}}{role.letter}", style=role.style)
    return core.append("]" if bracketed else "")


def _wrap(cores: Sequence[Text], width: int) -> Iterator[Text]:
    """Lines of whole cores; of a power of two of them, to align columns, if all have the same width."""
    widths = {core.cell_len for core in cores}
    fit = max(1, (width + 1) // (max(widths) + 1))
    if len(widths) == 1 and len(cores) > fit:
        width = (1 << fit.bit_length() - 1) * (max(widths) + 1) - 1
    line = Text()
    for core in cores:
        if line and line.cell_len + 1 + core.cell_len > width:
            yield line
            line = Text()
        line = Text(" ").join((line, core)) if line else core
    yield line


def _legend(topology: "Topology", uses: Uses, width: int) -> Iterator[Text]:
    used = sorted({uses[cpu.id] for cpu in topology.cpus}, key=_rank)
    name_width = max(len(role.name) for role in used)
    for role, cpus in ((role, CpuSet.of(cpu for cpu, its in uses.items() if its == role)) for role in used):
        start = f" {role.name.ljust(name_width)} {len(cpus):>4}  "
        first, *others = folded(cpus, max(width - len(start) - 1, 8))
        yield Text().append(role.letter, style=role.style).append(start).append(first)
        yield from (Text(" " * (len(start) + 1) + line) for line in others)


def _rank(role: Role) -> tuple[int, str]:
    return (ORDER.index(role) if role in ORDER else -1, role.name)


_SHOWN = {"01": "storage", "02": "network", "03": "display", "0b": "processor", "12": "accelerator"}
"""PCI classes; without bridges and system functions."""


def details(topology: "Topology", node: "Node", width: int) -> Iterator[str]:
    """Lines of at most ``width`` columns; what is not known is left out."""
    caches = [cache for cache in topology.caches if cache.cpus & node.cpus]
    facts = (
        ("caches", _caches(caches, node)),
        ("hugepages", [f"{p.total} of {kib(p.size_kib)} ({p.free} free)" for p in node.hugepages if p.total]),
        ("devices", _devices([device for device in topology.devices if _is_near(device, node, topology)])),
    )
    for name, parts in facts:
        indent = " " * (len(name) + 2)
        text = f"{name}  {', '.join(parts)}"
        yield from textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False) if parts else ()


def memory_only(topology: "Topology") -> Mapping[int, list[tuple[int, "Node"]]]:
    """Each with its distance, by the id of the nearest node with CPUs; those of an unknown distance are left out."""
    populated = [node for node in topology.nodes if node.cpus]
    nearby: dict[int, list[tuple[int, Node]]] = defaultdict(list)
    for node in topology.nodes:
        ways = [(other.distances[node.id], other.id) for other in populated if node.id in other.distances]
        if ways and node.memory_kib and not node.cpus:
            distance, nearest = min(ways)
            nearby[nearest].append((distance, node))
    return nearby


def _is_near(device: "Device", node: "Node", topology: "Topology") -> bool:
    return device.node == node.id or (device.node is None and len(topology.nodes) == 1)


def _caches(caches: list["Cache"], node: "Node") -> list[str]:
    counted = Counter((cache.level, cache.size_kib, cache.cpus <= node.cpus) for cache in caches)
    return [
        f"{count} L{level} of {_size(size)}{'' if is_inside else ' shared with other nodes'}"
        for (level, size, is_inside), count in sorted(counted.items())
    ]


def _size(amount: int) -> str:
    """A cache's size is no power of two on many machines."""
    if not amount:
        return "unknown size"
    return f"{amount} KiB" if amount < 1024 else f"{amount / 1024:g} MiB"


def _devices(devices: list["Device"]) -> list[str]:
    interfaces = [device for device in devices if device.kind == "net" and device.description]  # without virtual ones
    named = {device.description for device in interfaces}
    shown = [f"{visible(device.name)} ({visible(device.description)})" for device in interfaces]
    for device in devices:
        kind = _SHOWN.get(device.description[:2])
        if device.kind == "pci" and kind and device.name not in named:
            shown.append(f"{visible(device.name)} ({kind})")
    return shown
