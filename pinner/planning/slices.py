"""The parts of a node's free CPUs for each role."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pinner.model.cpuset import CpuSet, union
from pinner.model.request import AUTO, Request
from pinner.planning.allocatable_cpus import AllocatableCpus

_PART = 8
"""A step of an automatic set is one in this many of a node's CPUs."""
MOST = 2
"""Automatic sets that grow take at most one in this many of a node's free CPUs together: vCPUs keep the others."""
_ROLES = 3
"""Housekeeping, emulators and vCPUs."""
MOST_STEPS = _PART // MOST
"""The most steps of both automatic sets together."""


class Steps(NamedTuple):
    """How many steps large the automatic sets are. A set has one step unless its measured load needs more."""

    housekeeping: int
    emulator: int


@dataclass(frozen=True, slots=True)
class Slices:
    """The CPUs of one node, or of all, for each role."""

    housekeeping: CpuSet = CpuSet()
    emulator: CpuSet = CpuSet()
    vcpu: CpuSet = CpuSet()
    note: str = ""


Node = int | None


def of_nodes(
    allocatable: AllocatableCpus, request: Request, free: CpuSet, steps: Steps, *, isolating: bool = False
) -> dict[Node, Slices]:
    """The parts of each node's CPUs of ``free``, which has the CPUs for automatic sets and vCPUs."""
    return {
        node: _of_node(allocatable, request, node, free & cpus, steps, isolating=isolating)
        for node, cpus in allocatable.nodes.items()
    }


def union_of(by_node: Mapping[Node, Slices]) -> Slices:
    """The parts of all nodes together."""
    parts = by_node.values()
    return Slices(
        union(part.housekeeping for part in parts),
        union(part.emulator for part in parts),
        union(part.vcpu for part in parts),
    )


def _of_node(
    allocatable: AllocatableCpus, request: Request, node: int | None, free: CpuSet, steps: Steps, *, isolating: bool
) -> Slices:
    """The parts of a node's free CPUs; roles share CPUs where the node is too small to leave one for vCPUs."""
    floor = allocatable.nova.for_vcpus(free)
    cores = allocatable.cores_within(free - floor) + allocatable.cores_within(floor)
    autos = (request.housekeeping == AUTO, request.emulator == AUTO)
    if not cores or not any(autos):
        return Slices(vcpu=free)
    if len(cores) == 1:
        return _one_core(free, floor, node, autos, isolating=isolating)
    has_isolated = isolating and bool(allocatable.exclusive & allocatable.nodes[node])
    take = _Take(allocatable, len(allocatable.nodes[node]) // _PART, len(free) // (1 if has_isolated else MOST))
    others = 1 if has_isolated or not autos[1] else _ROLES - 1
    housekeeping = take.first(cores, steps.housekeeping, others) if autos[0] else CpuSet()
    take = take.beside(housekeeping)
    rest = [core for core in cores if not core <= housekeeping]
    if not autos[1]:
        return Slices(housekeeping=housekeeping, vcpu=union(rest))
    if isolating:
        return _beside_isolated(housekeeping, rest, node, take, steps, has_isolated=has_isolated)
    # A node that is small by itself lets emulators share the vCPUs' CPUs. One that processes made small does not.
    claimed = len(rest) > 1 and bool(allocatable.restricted & allocatable.nodes[node])
    emulator = take.first(rest, steps.emulator, int(claimed))
    both = emulator & floor
    if union(rest) - emulator or not both:
        return Slices(housekeeping, emulator, union(rest) - emulator)
    return Slices(
        housekeeping, emulator, both, f"{_begin(node)}is small: emulator threads share CPUs {both} with vCPUs"
    )


def _beside_isolated(
    housekeeping: CpuSet, rest: list[CpuSet], node: int | None, take: "_Take", steps: Steps, *, has_isolated: bool
) -> Slices:
    """The parts of a node where vCPUs get isolated CPUs: emulator threads can share only housekeeping's CPUs.

    ``has_isolated``: the node has isolated CPUs already, so that housekeeping and emulators may use all the others.
    """
    if has_isolated:
        emulator = take.first(rest, steps.emulator, 0)
    elif len(rest) > 1 or not housekeeping:
        emulator = take.first(rest, steps.emulator, 1)
    else:
        note = f"{_begin(node)}is small: emulator threads share CPUs {housekeeping} with housekeeping"
        return Slices(housekeeping, housekeeping, union(rest), note)
    return Slices(housekeeping, emulator, union(rest) - emulator)


def _one_core(free: CpuSet, floor: CpuSet, node: int | None, autos: tuple[bool, bool], *, isolating: bool) -> Slices:
    housekeeping, emulator = (free if auto else CpuSet() for auto in autos)
    vcpu = CpuSet() if isolating else floor
    sharing = [
        name for name, cpus in (("housekeeping", housekeeping), ("emulators", emulator), ("vCPUs", vcpu)) if cpus
    ]
    note = f"{_begin(node)}has one free core: {', '.join(sharing)} share CPUs {free}" if len(sharing) > 1 else ""
    return Slices(housekeeping, emulator, vcpu, note)


@dataclass(frozen=True, slots=True)
class _Take:
    """How many CPUs of a node a role takes.

    ``size`` is the size of one step, ``most`` the limit for larger sets of housekeeping and emulators together, of
    which ``taken`` CPUs are in use.
    """

    allocatable: AllocatableCpus
    size: int
    most: int
    taken: int = 0

    def beside(self, cpus: CpuSet) -> "_Take":
        """What is left beside the CPUs of another role."""
        return replace(self, taken=self.taken + len(cpus))

    def first(self, cores: list[CpuSet], steps: int, others: int) -> CpuSet:
        """The first cores that have the CPUs of so many steps together at most, but at least the minimum of cores.

        So many ``others`` among the roles get the rest: their minimum is left to them, or at least one core each. More
        steps than one leave the other role a step, and the vCPUs what is above ``most``.
        """
        least, left = self.allocatable.minimum_cores, self.allocatable.cores_worth(union(cores))
        step = max(self.size, len(cores[0]))
        size = self.size if steps == 1 else max(min(steps * step, self.most - (self.taken or step)), step)
        taken, worth = cores[0], self.allocatable.cores_worth(cores[0])
        for core in cores[1 : len(cores) - min(others, 1)]:
            more = self.allocatable.cores_worth(core)
            too_large = len(taken) + len(core) > size or round(left - worth - more, 6) < others * least
            if too_large and round(worth, 6) >= least:
                break
            taken, worth = taken | core, worth + more
        return taken


def _begin(node: int | None) -> str:
    return "the host " if node is None else f"node {node} "


def name(node: Node) -> str:
    """The node, for people."""
    return "the host" if node is None else f"node {node}"
