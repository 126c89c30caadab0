"""Which restricted affinities of processes keep their CPUs out of every set (docs/strategies.md). Where a role would
get fewer cores of a node than the minimum, those that are not firm are set aside, the least loaded first. Where the
firm ones alone leave too few, the plan is blocked."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import fsum

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import (
    RESERVING_LOAD,
    ROOT,
    STANDING_SECONDS,
    SYSTEM_SLICE,
    CpuLimit,
    Immovable,
    Process,
    Reserves,
    Thread,
    hosts_limits,
)
from pinner.model.plan.request import Request
from pinner.model.snapshot import OVS, OVS_DAEMON, Snapshot
from pinner.model.text import and_more, listed
from pinner.planning.available.allocatable_cpus import PINNED, AllocatableCpus, RestrictedAffinity
from pinner.planning.available.exclusions import asked_for, is_excluded_guest, is_excluded_process, own_cpus
from pinner.planning.available.numa import allowed, bound_of
from pinner.planning.available.operator_pins import beside_vcpus, is_left_to_operator, owned, pins_of, released
from pinner.planning.available.slices import ROLES

NAMED = 5

_FIRM = ("privileged", "configured")
_STANDING = f"running for {STANDING_SECONDS:g} s or as long as its service"
_LOADED = f"more than {RESERVING_LOAD:g} % of one CPU, and {_STANDING}"
_IDLE = (
    f"use no more than {RESERVING_LOAD:g} % of one CPU, run without privileges and are not in [host] affinity_owners"
)
_RECENT = f"started less than {STANDING_SECONDS:g} s before, and not with their service"
_WHY: dict[Reserves, str] = {
    "": _LOADED,
    "worked": _LOADED,
    "privileged": f"privileged, and {_STANDING}",
    "configured": "named in [host] affinity_owners",
}
_BESIDE_ISOLATED = 2
"""Roles that need balanced CPUs where vCPUs get the isolated ones."""


@dataclass(frozen=True, slots=True)
class _Found:
    process: Process
    load: float

    @property
    def firm(self) -> bool:
        return self.process.reserves in _FIRM and not self.process.recent

    @property
    def counts(self) -> bool:
        has_worked = self.process.reserves == "worked" or self.load > RESERVING_LOAD
        return self.firm or (has_worked and not self.process.recent)


@dataclass(frozen=True, slots=True)
class Restrictions:
    """One a mask, with one process's name: a firm one's, else the most loaded one's; and pins of QEMU's own."""

    counting: tuple[RestrictedAffinity, ...]
    idle: tuple[RestrictedAffinity, ...]


def restrictions(snapshot: Snapshot, request: Request) -> Restrictions:
    by_mask: dict[CpuSet, list[_Found]] = {}
    slices = hosts_slices(snapshot)
    for process in snapshot.processes:
        if snapshot.ovs is not None and process.name == OVS_DAEMON:
            continue  # its polling threads are of_ovs, the others are housekeeping
        stays = process.immovable_reason == "not-permitted" or not is_asked(process, request)
        if process.immovable_reason in ("", "not-permitted") and stays:
            for mask, load in _masks(process, slices).items():
                by_mask.setdefault(mask, []).append(_Found(process, load))
    counting: list[RestrictedAffinity] = []
    idle: list[RestrictedAffinity] = []
    for mask, holders in by_mask.items():
        restriction = _restriction(mask, holders)
        (counting if any(each.counts for each in holders) else idle).append(restriction)
    return Restrictions((*counting, *_beside_vcpus(snapshot, request)), tuple(idle))


def _beside_vcpus(snapshot: Snapshot, request: Request) -> Iterator[RestrictedAffinity]:
    for guest, pin, cpus in beside_vcpus(snapshot, request):
        part = "" if pin.part is None else f" {pin.part}"
        owner = f"guest {guest.name}'s {pin.kind}{part}"
        yield RestrictedAffinity(cpus, owner, firm=False, named=True, guest=guest.uuid)


def keeping(base: AllocatableCpus, affinities: Iterable[RestrictedAffinity]) -> AllocatableCpus:
    """Less these affinities, as far as every role keeps its minimum of every node: the firm ones first, by their CPUs,
    then by load."""
    if not (ordered := sorted(affinities, key=_order)):
        return base
    free = base.shared | base.unbalanced
    touched = union(each.cpus for each in ordered)
    needs = [_Need.of(base, cpus, free & cpus) for cpus in base.nodes.values() if cpus & touched]
    kept, aside = list(base.restrictions), []
    for each in ordered:
        after = free - each.cpus
        if all(need.is_met(base, after, firm=each.firm) for need in needs if need.cpus & each.cpus):
            free = after
            kept.append(each)
        else:
            aside.append(each)
    allocatable = replace(base, restrictions=tuple(kept), set_aside=tuple(aside))
    return replace(allocatable, blocked=_blocked(allocatable)) if any(each.firm for each in aside) else allocatable


def restricted_since(snapshot: Snapshot, request: Request, in_use: CpuSet) -> Iterator[RestrictedAffinity]:
    if not in_use:
        return
    for restriction in restrictions(snapshot, request).counting:
        if both := restriction.cpus & in_use:
            yield replace(restriction, cpus=both)


def of_guests(snapshot: Snapshot, request: Request, in_use: CpuSet = CpuSet()) -> Iterator[RestrictedAffinity]:
    """Not the CPUs ``in_use`` to which an excluded guest happens to be pinned, without a pin of an operator."""
    own = owned(snapshot, request)
    for guest in snapshot.guests:
        if cpus := own.get(guest.uuid, CpuSet()):
            yield RestrictedAffinity(cpus, f"guest {guest.name}{PINNED}", guest=guest.uuid)
        if is_excluded_guest(guest, request) and (rest := own_cpus(guest) - cpus - in_use):
            yield RestrictedAffinity(rest, f"guest {guest.name}, which is excluded", guest=guest.uuid)


def of_ovs(snapshot: Snapshot) -> Iterator[RestrictedAffinity]:
    """Open vSwitch's threads with DPDK poll: no role gets their CPUs, whatever its minimum."""
    if snapshot.ovs is not None and (cpus := snapshot.ovs.cpus & snapshot.topology.online):
        yield RestrictedAffinity(cpus, OVS, named=True)


def limits(snapshot: Snapshot, request: Request) -> tuple[CpuLimit, ...]:
    """See AllocatableCpus.limits. Only guests that a plan may place count."""
    by_set: dict[CpuSet, CpuLimit] = {}
    for guest in released(snapshot, request).guests:
        stays = is_excluded_guest(guest, request) or is_left_to_operator(guest, request)
        if not stays and (not guest.dedicated or request.nova_emulators):
            cpus = allowed(guest, snapshot.topology.online)
            path = guest.cpu_limits[-1].path if guest.cpu_limits else ROOT
            by_set.setdefault(cpus, CpuLimit(path, cpus))
    return tuple(by_set.values()) if set(by_set) - {snapshot.topology.online} else ()


def definitions(snapshot: Snapshot, request: Request) -> tuple[CpuSet, ...]:
    """See AllocatableCpus.definitions. Only guests that a plan may place count, with a CPU more than vCPUs."""
    bounds = (
        (guest, bound_of(guest, snapshot.topology))
        for guest in released(snapshot, request).guests
        if guest.restriction and not guest.dedicated
        if not (is_excluded_guest(guest, request) or is_left_to_operator(guest, request))
    )
    sets = (bound.nodes for guest, bound in bounds if bound and bound.nodes and len(bound.nodes) > len(guest.plugged))
    return tuple(dict.fromkeys(sets))


def warnings(allocatable: AllocatableCpus) -> Iterator[str]:
    for why in (_IDLE, _RECENT):
        if idle := [each for each in allocatable.idle if each.why == why]:
            yield (
                f"CPUs {union(each.cpus for each in idle)} are allocated although {names(idle)} are restricted to "
                f"them: these processes {why}"
            )
    if aside := [each for each in allocatable.set_aside if not each.firm]:
        yield (
            f"CPUs {union(each.cpus for each in aside)} are allocated although {names(aside)} are restricted to them: "
            f"otherwise a role would have fewer cores of a node than its minimum ({allocatable.minimum_cores})"
        )


def names(affinities: Iterable[RestrictedAffinity]) -> str:
    return listed([f"{each.owner} (CPUs {each.cpus})" for each in affinities], NAMED)


def owned_in_words(guest: Guest, allocatable: AllocatableCpus) -> str:
    own = union(each.cpus for each in allocatable.restrictions if each.guest == guest.uuid)
    others = [
        f"CPUs {both} with {each.owner}"
        for each in allocatable.restrictions
        if each.guest != guest.uuid and (both := own & each.cpus)
    ]
    shared = f" (it shares {listed(others, NAMED)})" if others else ""
    rest = union(pin.cpus for pin in pins_of(guest) if pin.kind == "vcpu") & allocatable.online - own
    left = allocatable.online - allocatable.reserved - allocatable.restricted - rest
    wide = "more cores than vCPUs" if any(allocatable.cores[cpu] <= left for cpu in left) else "all cores"
    none = f"; it owns none of CPUs {rest}: pins to {wide} only restrict it" if rest else ""
    qemus = union(pin.cpus for pin in pins_of(guest) if pin.kind != "vcpu") & allocatable.online - own
    last = f"; housekeeping takes CPUs {qemus} of QEMU's own threads last" if qemus else ""
    return (f"; it owns CPUs {own}{shared}" if own else "") + none + last


def is_asked(process: Process, request: Request) -> bool:
    return asked_for(process, request) and not is_excluded_process(process, request)


def hosts_slices(snapshot: Snapshot) -> CpuSet:
    """The CPUs to which system.slice and the host's other units confine their processes; empty where system.slice has
    all."""
    limits = hosts_limits(limit for process in snapshot.processes for limit in process.cpu_limits)
    is_confined = any(limit.path.strip("/") == SYSTEM_SLICE for limit in limits)
    return union({limit.cpus for limit in limits}) if is_confined else CpuSet()


def reason_to_stay(process: Process, thread: Thread, slices: CpuSet) -> Immovable:
    """``slices``: see hosts_slices."""
    return process.immovable_reason or ("" if _is_hosts(process, thread, slices) else thread.immovable_reason)


def _is_hosts(process: Process, thread: Thread, slices: CpuSet) -> bool:
    """A slice of the host alone confines it, nobody restricted it by itself: it moves inside."""
    limits = hosts_limits(process.cpu_limits[-1:]) if slices and thread.immovable_reason == "restricted" else ()
    return any(limit.cpus == thread.affinity for limit in limits)


def _order(each: RestrictedAffinity) -> tuple[bool, float, list[int]]:
    # Load does not order the firm ones: the agent, which measures none, must come to the same answer.
    return not each.firm, 0.0 if each.firm else -each.load, list(each.cpus)


@dataclass(frozen=True, slots=True)
class _Cores:
    worth: float
    whole: int

    @classmethod
    def of(cls, base: AllocatableCpus, cpus: CpuSet) -> "_Cores":
        return cls(base.cores_worth(cpus), base.count_whole_cores(cpus))

    def at_most(self, cores: int) -> "_Cores":
        return _Cores(min(self.worth, cores), min(self.whole, cores))

    def __ge__(self, other: "_Cores") -> bool:
        return self.worth >= other.worth and self.whole >= other.whole


_Amounts = tuple[_Cores, _Cores, _Cores, _Cores]


def _amounts(base: AllocatableCpus, free: CpuSet) -> _Amounts:
    vcpus = base.for_vcpus(free)
    amounts = free - base.isolated, vcpus, free, vcpus & base.isolated
    balanced, every_vcpus, every, isolated = (_Cores.of(base, cpus) for cpus in amounts)
    return balanced, every_vcpus, every, isolated


@dataclass(frozen=True, slots=True)
class _Need:
    """At most the node's cores without restricted affinities."""

    cpus: CpuSet
    amounts: _Amounts
    beside_firm: _Amounts
    """On a small node, where roles share CPUs anyway, one minimum is enough for all. No isolated CPU must be left:
    guests can use those of other nodes."""

    @classmethod
    def of(cls, base: AllocatableCpus, cpus: CpuSet, free: CpuSet) -> "_Need":
        least, roles = base.minimum_cores, _BESIDE_ISOLATED if base.isolating and free & base.isolated else len(ROLES)
        balanced, vcpus, every, isolated = _amounts(base, free)
        small = every.worth < len(ROLES) * least or balanced.worth < roles * least
        for_roles = balanced.at_most(roles * least), vcpus.at_most(least), every.at_most(len(ROLES) * least)
        shared = balanced.at_most(least), vcpus.at_most(least), every.at_most(least)
        return cls(
            cpus,
            (*for_roles, isolated.at_most(least if base.isolating else 0)),
            (*(shared if small else for_roles), isolated.at_most(0)),
        )

    def is_met(self, base: AllocatableCpus, free: CpuSet, *, firm: bool) -> bool:
        needed = self.beside_firm if firm else self.amounts
        return all(has >= need for has, need in zip(_amounts(base, free & self.cpus), needed, strict=True))


def _masks(process: Process, slices: CpuSet) -> dict[CpuSet, float]:
    masks: dict[CpuSet, float] = {}
    for thread in process.threads:
        is_restricted = thread.immovable_reason == "restricted" and not _is_hosts(process, thread, slices)
        if thread.affinity and is_restricted:
            masks[thread.affinity] = masks.get(thread.affinity, 0.0) + thread.load
    return masks


def _restriction(mask: CpuSet, holders: list[_Found]) -> RestrictedAffinity:
    first = max(holders, key=lambda each: (each.firm, each.counts, each.load, -each.process.pid))
    owner = str(Target("process", str(first.process.pid), first.process.started, first.process.name))
    if first.process.user:
        owner += f" of user {first.process.user}"
    owner += and_more(len(holders) - 1)
    load = round(fsum(each.load for each in holders), 2)
    named = any(each.process.reserves == "configured" for each in holders)
    why = _WHY[first.process.reserves] if first.counts else _RECENT if first.process.recent else _IDLE
    return RestrictedAffinity(mask, owner, any(each.firm for each in holders), load, named, why=why)


def _blocked(allocatable: AllocatableCpus) -> str:
    firm = [each for each in (*allocatable.restrictions, *allocatable.set_aside) if each.firm]
    least = allocatable.minimum_cores
    return (
        f"restricted affinities leave a role fewer than {least} {'core' if least == 1 else 'cores'} of a node: "
        f"{names(sorted(firm, key=lambda each: each not in allocatable.set_aside))}; "
        f"{''.join(f'{limit} allows guests CPUs {limit.cpus}; ' for limit in allocatable.limits[:NAMED])}"
        "free CPUs of these processes, or name processes in processes (--process) to move them"
    )
