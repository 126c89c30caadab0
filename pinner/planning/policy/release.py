"""A plan that restores a guest's affinities from before pinner placed it: a migration must not carry a placement to
another host.

A thread that started after a placement, such as a plugged-in vCPU, may have inherited a mask of pinner's. It has its
source's prior mask; see pinner.apply.undo.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from pinner.model.change import AffinityChange, Target, TargetKey, ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Lineage, Thread, main_thread, may_inherit_of_guest, may_start_threads_of
from pinner.model.machine.topology import Topology
from pinner.model.plan.objective import compared
from pinner.model.plan.plan import Basis, Plan, Roles, Wanted, plan_id
from pinner.model.plan.request import Request
from pinner.model.run.journal import Entry
from pinner.model.snapshot import Snapshot
from pinner.planning.available.allocatable_cpus import AllocatableCpus
from pinner.planning.available.numa import VcpuGroup, bound_of
from pinner.planning.objective_terms import ObjectiveMeasure, weights
from pinner.planning.request.context import in_order
from pinner.planning.request.processes import allocatable_cpus


@dataclass(frozen=True, slots=True)
class Placed:
    """Each thread's prior mask, and each target's last CPUs."""

    first: dict[ThreadKey, CpuSet] = field(default_factory=dict)
    last: dict[TargetKey, CpuSet] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Part:
    target: Target
    since: Lineage | None
    """Facts at the first change."""
    given: set[CpuSet] = field(default_factory=set)
    masks: dict[ThreadKey, CpuSet] = field(default_factory=dict)
    """From before pinner first touched the threads."""
    inheritors: dict[ThreadKey, tuple[CpuSet, tuple["_Part", ...]]] = field(default_factory=dict)
    """First known with pinner's mask; with the other parts that had it."""

    def resolve(self) -> None:
        """The older parts have been resolved."""
        for key, (mask, sources) in self.inheritors.items():
            known = [source.masks for source in sources if source.masks] or [self.masks]
            prior = Counter(masks[min(masks, key=lambda thread: thread.started)] for masks in known if masks)
            self.masks[key] = prior.most_common(1)[0][0] if prior else mask


def past_of(done: Iterable[Entry]) -> Placed:
    """``done``: changes of affinities, oldest first."""
    parts: dict[TargetKey, _Part] = {}
    past = Placed()
    for entry in done:
        change = entry.change
        if isinstance(change, AffinityChange):
            part = parts.setdefault(change.target.key, _Part(change.target, entry.lineage))
            masks = (*change.before, *entry.found)
            main = main_thread(change.target, masks)
            for mask in masks:
                is_own = mask.key == main or mask.cpus in part.given
                _add(mask, part, () if is_own else tuple(_sources(mask, part, entry.lineage, parts.values())))
            part.given.add(change.after)
            past.last[change.target.key] = change.after
    for part in parts.values():
        part.resolve()
        past.first.update(part.masks)
    return past


def _add(mask: ThreadMask, part: _Part, sources: tuple[_Part, ...]) -> None:
    if mask.key in part.masks or mask.key in part.inheritors:
        return
    if mask.cpus in part.given or sources:
        part.inheritors[mask.key] = mask.cpus, sources
    else:
        part.masks[mask.key] = mask.cpus


def _sources(mask: ThreadMask, part: _Part, seen: Lineage | None, parts: Iterable[_Part]) -> Iterator[_Part]:
    """Parts from which a thread may have its mask; ``seen``: when it was found."""
    for other in parts:
        starts = may_start_threads_of(other.target, part.target)
        if starts and mask.cpus in other.given and may_inherit_of_guest(mask.started, other.since, seen):
            yield other


def release(
    snapshot: Snapshot, snapshot_id: str, guest: str, done: Iterable[Entry], within: CpuSet, reason: str
) -> Plan:
    """``done``: changes of the guest (by UUID) that were not undone, oldest first. ``within``: the CPUs of its
    destination, empty where unknown; only those can be restored, unless all of them belong to others here, such as
    Nova.

    Targets that pinner never placed, or that another program has moved since, do not change. A guest whose migration
    has begun has no changes.
    """
    past, snapshot = past_of(done), in_order(snapshot)
    here = [each for each in snapshot.guests if each.uuid == guest and not each.is_migrating]
    request = Request(guests=(guest,))
    theirs = of_others(allocatable_cpus(snapshot, request, only_firm=True)) if here else CpuSet()
    restored = partial(_restored, online=snapshot.topology.online, within=within, theirs=theirs)
    changes = tuple(change for each in here for change in _changes(each, past, snapshot.topology, restored, reason))
    measure = ObjectiveMeasure.of(snapshot, request.busy_threshold)
    planned = {mask.tid: change.after for change in changes for mask in change.before}
    return Plan(
        id=plan_id(f"{snapshot_id} release {guest} {within}".encode()),
        host=snapshot.host,
        request=request,
        basis=Basis(snapshot_id, snapshot.taken_at, snapshot.topology.fingerprint, snapshot.boot),
        roles=Roles(
            CpuSet(), CpuSet(), CpuSet(), ("this plan allocates no CPUs: it restores the guest's prior affinities",)
        ),
        wanted=tuple(Wanted(change.target, change.after, reason) for change in changes),
        changes=changes,
        unplaced=(),
        skipped=(),
        warnings=(),
        objective=compared(measure.values({}), measure.values(planned), weights(snapshot, request)),
        purpose="release",
    )


def of_others(allocatable: AllocatableCpus) -> CpuSet:
    """Given back only together with CPUs that are free."""
    return allocatable.restricted | allocatable.dedicated | allocatable.isolated


def _changes(
    guest: Guest, past: Placed, topology: Topology, restored: Callable[[CpuSet, VcpuGroup], CpuSet], reason: str
) -> Iterator[AffinityChange]:
    bound = bound_of(guest, topology)
    for target, threads in guest.threads_by_target.items():
        placed = past.last.get(target.key)
        if placed is None or all(thread.affinity != placed for thread in threads):
            continue
        group = bound.of(target) if bound else VcpuGroup(())
        cpus = restored(prior(threads, past.first), group)
        if not cpus:
            continue
        if cpus != placed:
            masks = tuple(ThreadMask(thread.tid, thread.started, thread.affinity) for thread in threads)
            yield AffinityChange(target, masks, cpus, reason)


def _restored(before: CpuSet, group: VcpuGroup, *, online: CpuSet, within: CpuSet, theirs: CpuSet) -> CpuSet:
    """A bound to NUMA nodes counts more than the destination: Nova and libvirt write such a guest's pins anew there.
    Where only CPUs of others are left so, neither counts."""
    for possible in (online & within, online):
        cpus = group.within(before & possible) or group.within(possible)
        if cpus and not cpus <= theirs:
            return cpus
    return before & online


def prior(threads: Iterable[Thread], first: Mapping[ThreadKey, CpuSet]) -> CpuSet:
    """CPUs that any of the threads had first; empty where none is older than the placement."""
    return union(first.get(thread.key, CpuSet()) for thread in threads)
