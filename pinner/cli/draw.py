"""A host as lines of text: nodes, L3 domains, cores and their threads, each thread with the letter of its role.

Pure: the width is passed in, and the letters say everything that the colours say.
"""

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from rich.text import Text

from pinner.cli.output import kib
from pinner.cli.roles import ORDER, Role, Uses
from pinner.model.cpuset import CpuSet
from pinner.model.topology import Cpu, Node, Topology
from pinner.render import visible

GAP = 3
"""Columns between two drawings side by side."""
SIDE_BY_SIDE = 50
"""Columns that a drawing needs at least to stand beside another."""
INDENT = "  "


def drawing(topology: Topology, views: Sequence[tuple[str, Uses]], width: int) -> list[Text]:
    """The host once for each titled view, beside each other where ``width`` columns hold them, else below."""
    share = (width - GAP * (len(views) - 1)) // len(views)
    if len(views) > 1 and share >= SIDE_BY_SIDE:
        columns = [_view(topology, title, uses, share) for title, uses in views]
        widths = [max(line.cell_len for line in column) for column in columns]
        return [_join(lines, widths) for lines in zip_longest(*columns, fillvalue=Text())]
    return [
        line
        for number, (title, uses) in enumerate(views)
        for line in ([Text()] if number else []) + _view(topology, title, uses, width)
    ]


def _join(lines: Sequence[Text], widths: Sequence[int]) -> Text:
    joined = Text()
    for line, width in zip(lines, widths, strict=True):
        joined.append_text(line).append(" " * (width + GAP - line.cell_len))
    joined.rstrip()
    return joined


def _view(topology: Topology, title: str, uses: Uses, width: int) -> list[Text]:
    lines = [Text(visible(title), style="bold underline")]
    for node in topology.nodes:
        cpus = [cpu for cpu in topology.cpus if cpu.node == node.id]
        lines += [Text(), _heading(node, bool(cpus)), *_domains(topology, cpus, uses, width)]
    homeless = [cpu for cpu in topology.cpus if cpu.node is None]
    if homeless:
        lines += [Text(), Text("no node", style="bold"), *_domains(topology, homeless, uses, width)]
    return [*lines, Text(), *_legend(topology, uses, width)]


def _heading(node: Node, populated: bool) -> Text:
    memory = f"{kib(node.memory_kib)}, {kib(node.free_kib)} free" if node.memory_kib else "no memory"
    return Text(f"node {node.id}", style="bold").append(
        f"  {memory}{'' if populated else ', no CPUs'}", style="not bold"
    )


def _domains(topology: Topology, cpus: Sequence[Cpu], uses: Uses, width: int) -> Iterator[Text]:
    """One block for each socket, die and L3 domain of these CPUs, in the order of their first CPUs."""
    domains: dict[tuple[int | None, int | None, int | None], list[Cpu]] = defaultdict(list)
    for cpu in sorted(cpus, key=lambda cpu: cpu.id):
        domains[cpu.socket, cpu.die, cpu.l3].append(cpu)
    many_dies = len({(cpu.socket, cpu.die) for cpu in topology.cpus}) > len({cpu.socket for cpu in topology.cpus})
    labels = [_label(*place, many_dies) for place in domains]
    indent = max((len(label) for label in labels), default=0) + 2 * len(INDENT)
    id_width = len(str(max(cpu.id for cpu in topology.cpus)))
    threaded = any(len(cpu.siblings) > 1 for cpu in topology.cpus)
    for label, members in zip(labels, domains.values(), strict=True):
        start = Text(f"{INDENT}{label}".ljust(indent), style="dim")
        for line in _wrap([_core(core, uses, id_width, threaded) for core in _cores(members)], width - indent):
            yield start + line
            start = Text(" " * indent)


def _label(socket: int | None, die: int | None, l3: int | None, many_dies: bool) -> str:
    parts = [("socket", socket), ("die", die if many_dies else None), ("L3", l3)]
    return " ".join(f"{name} {number}" for name, number in parts if number is not None) or "place unknown"


def _cores(cpus: Iterable[Cpu]) -> list[list[Cpu]]:
    """The threads of each core together; an offline CPU tells no siblings and stands for itself."""
    cores: dict[CpuSet, list[Cpu]] = defaultdict(list)
    for cpu in cpus:
        cores[cpu.siblings or CpuSet.of([cpu.id])].append(cpu)
    return list(cores.values())


def _core(threads: Sequence[Cpu], uses: Uses, id_width: int, bracketed: bool) -> Text:
    core = Text("[" if bracketed else "")
    for number, cpu in enumerate(threads):
        role = uses[cpu.id]
        core.append(" " if number else "").append(f"{cpu.id:>{id_width}}{role.letter}", style=role.style)
    return core.append("]" if bracketed else "")


def _wrap(cores: Sequence[Text], width: int) -> Iterator[Text]:
    """Lines of whole cores; where all are alike, lines hold a power of two of them, so that columns stand in rows."""
    widest = max(core.cell_len for core in cores)
    fit = max(1, (width + 1) // (widest + 1))
    per_line = 1 << (fit.bit_length() - 1) if len(cores) > fit else len(cores)
    for first in range(0, len(cores), per_line):
        yield Text(" ").join(cores[first : first + per_line])


def _legend(topology: Topology, uses: Uses, width: int) -> Iterator[Text]:
    used = sorted({uses[cpu.id] for cpu in topology.cpus}, key=_rank)
    name_width = max(len(role.name) for role in used)
    for role, cpus in ((role, CpuSet.of(cpu for cpu, its in uses.items() if its == role)) for role in used):
        start = f" {role.name.ljust(name_width)} {len(cpus):>4}  "
        room = max(width - len(start) - 1, 8)
        parts = textwrap.wrap(str(cpus).replace(",", ", "), room)
        yield Text(role.letter, style=role.style).append(start).append(parts[0].replace(", ", ","))
        for part in parts[1:]:
            yield Text(" " * (len(start) + 1) + part.replace(", ", ","))


def _rank(role: Role) -> tuple[int, str]:
    return (ORDER.index(role) if role in ORDER else -1, role.name)
