"""The CPUs to which a guest's memory, and Nova's pins of its cells, bind its threads (docs/strategies.md). A node
without CPUs binds no thread."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Topology


@dataclass(frozen=True, slots=True)
class VcpuGroup:
    """vCPUs of a guest that are bound to the same CPUs. A guest without bounds has one group."""

    vcpus: tuple[int, ...]
    cpus: CpuSet | None = None
    """Online or not; None: any."""
    why: str = ""
    """What binds them; empty: nothing."""

    def within(self, cpus: CpuSet) -> CpuSet:
        return cpus if self.cpus is None else cpus & self.cpus


@dataclass(frozen=True, slots=True)
class NumaBound:
    groups: tuple[VcpuGroup, ...]
    """With the unplugged vCPUs."""
    nodes: CpuSet | None
    """For the guest's other threads; None: any."""

    def of(self, target: Target) -> VcpuGroup:
        if target.kind == "vcpu":
            return next((group for group in self.groups if target.part in group.vcpus), VcpuGroup(()))
        return VcpuGroup((), self.nodes, "; ".join(group.why for group in self.groups if group.why))


def bound_of(guest: Guest, topology: Topology) -> NumaBound | None:
    """None where no vCPU has one."""
    numa = guest.numa
    if not (numa.bindings() or numa.huge_kib or numa.pins):
        return None
    # A node that has lost its CPUs still binds.
    nodes = topology.cpus_by_node
    groups: dict[CpuSet | None, list[int]] = {}
    why: dict[CpuSet | None, list[str]] = {}
    for vcpu in guest.vcpus:
        cpus, reason = _bound(guest, vcpu.id, nodes)
        groups.setdefault(cpus, []).append(vcpu.id)
        why.setdefault(cpus, []).append(reason)
    if not any(cpus is not None for cpus in groups):
        return None
    return NumaBound(
        tuple(VcpuGroup(tuple(vcpus), cpus, _joined(why[cpus])) for cpus, vcpus in groups.items()),
        None if None in groups else _whole_nodes(groups, nodes),
    )


def bounds_of(guests: Iterable[Guest], topology: Topology) -> dict[str, NumaBound]:
    return {guest.uuid: bound for guest in guests if (bound := bound_of(guest, topology)) is not None}


def may_move_to(guest: Guest, node: int) -> bool:
    """Strict memory and huge pages stay where they are."""
    strict = all(node in binding.nodes for binding in guest.numa.bindings())
    return strict and not {other for other, kib in guest.numa.huge_kib.items() if kib} - {node}


def _bound(guest: Guest, vcpu: int, nodes: Mapping[int, CpuSet]) -> tuple[CpuSet | None, str]:
    found = list(_bounds(guest, vcpu, nodes))
    if not found:
        return None, ""
    cpus = found[0][0]
    for other, _ in found[1:]:
        cpus &= other
    cell = guest.numa.cell_of(vcpu)
    whose = f"cell {cell.id} has " if cell else "the guest has "
    return cpus, whose + " and ".join(reason for _, reason in found)


def _bounds(guest: Guest, vcpu: int, nodes: Mapping[int, CpuSet]) -> Iterator[tuple[CpuSet, str]]:
    binding, huge = guest.numa.binding_of(vcpu), sorted(node for node, kib in guest.numa.huge_kib.items() if kib)
    for ids, what in ((binding.nodes, "strict memory") if binding else (huge, "huge pages"),):
        if cpus := union(nodes.get(node, CpuSet()) for node in ids):
            yield cpus, f"{what} on node{'s' * (len(ids) > 1)} {CpuSet.of(ids)}"
    if pin := guest.numa.pins.get(vcpu):
        yield pin, f"CPUs {pin} from Nova"


def _whole_nodes(groups: Iterable[CpuSet | None], nodes: Mapping[int, CpuSet]) -> CpuSet:
    every = union(cpus for cpus in groups if cpus is not None)
    near = union(cpus for cpus in nodes.values() if cpus & every)
    return near or every


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
