"""Which CPUs of a host may be handed out, and why the others may not."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.nova import NovaOwns
from pinner.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RestrictedAffinity:
    """CPUs that somebody gave to a process of his on purpose."""

    cpus: CpuSet
    owner: str
    """The process, for people."""


@dataclass(frozen=True, slots=True)
class AllocatableCpus:
    """A host's online CPUs by what stands against handing them out; the sets may overlap."""

    online: CpuSet
    offline: CpuSet
    isolated: CpuSet
    nova: NovaOwns
    restrictions: tuple[RestrictedAffinity, ...]
    nodes: Mapping[int | None, CpuSet]
    """Online CPUs by NUMA node, by ascending id; None holds those whose node the kernel does not tell."""
    cores: Mapping[int, CpuSet]
    """For each online CPU the online hardware threads of its core, itself included."""
    partitioned: CpuSet
    """Those in partitions that this request makes itself; they are not among the isolated."""
    sockets: Mapping[int, int]
    """The socket of each online CPU whose socket the kernel tells."""

    @classmethod
    def of(
        cls, snapshot: Snapshot, restrictions: Iterable[RestrictedAffinity], partitioned: CpuSet = CpuSet()
    ) -> "AllocatableCpus":
        """The CPUs of a snapshot, with what processes claim of them."""
        topology = snapshot.topology
        online = topology.online
        nodes: dict[int | None, set[int]] = {}
        for cpu in topology.cpus:
            if cpu.online:
                nodes.setdefault(cpu.node, set()).add(cpu.id)
        ordered = sorted(nodes, key=lambda node: (node is None, node))
        return cls(
            online=online,
            offline=topology.offline,
            isolated=(topology.isolated & online) - partitioned,
            nova=snapshot.nova_owns(),
            restrictions=tuple(restrictions),
            nodes={node: CpuSet.of(nodes[node]) for node in ordered},
            cores=_cores(snapshot, online),
            partitioned=partitioned,
            sockets={cpu.id: cpu.socket for cpu in topology.cpus if cpu.online and cpu.socket is not None},
        )

    @property
    def dedicated(self) -> CpuSet:
        """Nova's: cpu_dedicated_set, and where guests that Nova pinned are."""
        return self.nova.dedicated

    @property
    def restricted(self) -> CpuSet:
        """The CPUs of all claims."""
        return union(restriction.cpus for restriction in self.restrictions)

    @property
    def shared(self) -> CpuSet:
        """What threads may float over: online, load-balanced, and nobody else's."""
        return self.online - self.isolated - self.dedicated - self.restricted

    @property
    def exclusive(self) -> CpuSet:
        """The isolated CPUs that are nobody else's: for one vCPU each."""
        return self.nova.for_vcpus(self.isolated - self.dedicated - self.restricted)

    def without(self, cpus: CpuSet) -> "AllocatableCpus":
        """The same host without the claims to exactly these CPUs."""
        return replace(
            self, restrictions=tuple(restriction for restriction in self.restrictions if restriction.cpus != cpus)
        )

    def cores_within(self, cpus: CpuSet) -> list[CpuSet]:
        """The parts of cores that lie within ``cpus`` (online ones), in order of their lowest CPU there."""
        parts: list[CpuSet] = []
        seen: set[int] = set()
        for cpu in cpus:
            if cpu not in seen:
                parts.append(self.cores[cpu] & cpus)
                seen |= parts[-1].ids
        return parts

    def objections(self, cpus: CpuSet, *, floating: bool = True) -> list[str]:
        """Why CPUs of ``cpus`` cannot be handed out, as clauses that name them; empty: they can, but for Nova.

        Isolated CPUs are an objection only to ``floating`` threads: the kernel does not balance them.
        """
        kinds = (
            ("absent", cpus - self.online - self.offline),
            ("offline", cpus & self.offline),
            ("isolated from the kernel's scheduler", cpus & self.isolated if floating else CpuSet()),
        )
        restrictions = (
            (f"claimed by {restriction.owner}", cpus & restriction.cpus) for restriction in self.restrictions
        )
        return [
            f"{these} {'is' if len(these) == 1 else 'are'} {why}" for why, these in (*kinds, *restrictions) if these
        ]


def _cores(snapshot: Snapshot, online: CpuSet) -> dict[int, CpuSet]:
    cores: dict[int, CpuSet] = {}
    for cpu in sorted(snapshot.topology.cpus, key=lambda cpu: cpu.id):
        if cpu.online and cpu.id not in cores:
            core = CpuSet((cpu.siblings.ids & online.ids | {cpu.id}).difference(cores))
            cores |= dict.fromkeys(core.ids, core)
    return cores
