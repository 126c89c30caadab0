"""The quality of a placement, counted from the hardware alone, so that every contender is judged alike."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

from pinner.model.change import TargetKey
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import Wanted

Places = Mapping[str, Sequence[int] | None]
"""The CPUs of each guest's vCPUs, by the guest's name; None: the guest has no place."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Counts of what a placement could do better; 0 is best."""

    extra_l3: int
    """L3 domains that guests span beyond the fewest that have enough CPUs in the pool of an empty host."""
    shared_cores: int
    """Cores that run vCPUs of several guests."""
    extra_nodes: int
    """Nodes that guests span beyond need."""
    unplaced: int
    """Guests without a place."""

    def __str__(self) -> str:
        return "L3 +{}, shared cores {}, nodes +{}, unplaced {}".format(*astuple(self))

    def __add__(self, other: "Quality") -> "Quality":
        return Quality(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


NOTHING = Quality(0, 0, 0, 0)


class Judge:
    """Counts for placements on the pool of one host."""

    def __init__(self, hardware: Topology, pool: CpuSet) -> None:
        self._pool = pool
        self._cores = [core & pool for core in {cpu.siblings for cpu in hardware.cpus}]
        self._l3 = [domain & pool for domain in hardware.l3_domains if domain & pool]
        self._nodes = [node.cpus & pool for node in hardware.nodes if node.cpus & pool]

    def quality(self, places: Places) -> Quality:
        """The quality of a placement. Raises ValueError where a CPU is outside the pool or has two vCPUs."""
        placed = {name: cpus for name, cpus in places.items() if cpus is not None}
        used = Counter(cpu for cpus in placed.values() for cpu in cpus)
        if wrong := sorted(cpu for cpu, times in used.items() if times > 1 or cpu not in self._pool):
            raise ValueError(f"CPUs {wrong} have several vCPUs or are not in the pool {self._pool}")
        masks = [CpuSet.of(cpus) for cpus in placed.values()]
        return Quality(
            extra_l3=sum(_extra(mask, self._l3) for mask in masks),
            shared_cores=sum(1 for core in self._cores if sum(1 for mask in masks if mask & core) > 1),
            extra_nodes=sum(_extra(mask, self._nodes) for mask in masks),
            unplaced=len(places) - len(placed),
        )


def places_of(wanted: Iterable[Wanted], guests: Iterable[Guest]) -> Places:
    """The placement that a plan of pinner wants: a guest has a place if each of its vCPUs has one CPU."""
    cpus = {want.target.key: want.cpus for want in wanted if want.target.kind == "vcpu"}
    found: dict[str, Sequence[int] | None] = {}
    for guest in guests:
        own = [cpus.get(TargetKey("vcpu", guest.uuid, vcpu.id), CpuSet()) for vcpu in guest.vcpus if vcpu.thread]
        found[guest.name] = [min(mask) for mask in own] if all(len(mask) == 1 for mask in own) else None
    return found


def _extra(mask: CpuSet, domains: Sequence[CpuSet]) -> int:
    """How many domains the CPUs span beyond the fewest that have as many CPUs."""
    spanned = sum(1 for domain in domains if domain & mask)
    needed, room = 0, 0
    for size in sorted(map(len, domains), reverse=True):
        if room >= len(mask):
            break
        needed, room = needed + 1, room + size
    return max(spanned - needed, 0)
