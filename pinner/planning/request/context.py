"""A strategy's input: a snapshot, read for one request, in a fixed order: a plan does not depend on that of libvirt and
the kernel."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

from pinner.model.change import Target, TargetKey
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest, nova_cpus
from pinner.model.kinds import QEMUS_OWN
from pinner.model.machine.interrupts import DeviceIrq, DeviceIrqs
from pinner.model.machine.process import NOT_PERMITTED, Process, Thread
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import LeftOut, Placement, Roles, Wanted
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot, emulator_cpus, settings, vcpu_cpus
from pinner.model.states import State
from pinner.planning.available import exclusions
from pinner.planning.available.allocatable_cpus import AllocatableCpus, RestrictedAffinity
from pinner.planning.available.exclusions import (
    is_excluded_guest,
    is_named,
    own_cpus,
    own_of_others,
    possible_pools,
    require_running_guests,
)
from pinner.planning.available.numa import (
    MemoryBalance,
    NumaBound,
    VcpuGroup,
    bounds_of,
    is_bound_to_nodes,
    within_partitions,
)
from pinner.planning.available.operator_pins import is_left_to_operator, pins_in_words, pins_of, released
from pinner.planning.available.restrictions import owned_in_words, restricted_since
from pinner.planning.available.roles import Resolved, resolve
from pinner.planning.request.processes import (
    Moving,
    allocatable_cpus,
    managed_processes,
    moving,
    require_asked,
    require_threshold,
    staying,
    without_own_masks,
)

DEFERRED = "deferred: it is not plugged in, so its pin could not be verified; a plan made after the hotplug places it"
"""libvirt would store an unplugged vCPU's pin, but no thread would verify it."""


@dataclass(frozen=True, slots=True)
class _Scope:
    guests: tuple[Guest, ...]
    skipped: tuple[Guest, ...]
    nova_pinned: tuple[Guest, ...]
    moving: tuple[Moving, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, request: Request, placement: Placement | None) -> "_Scope":
        requested = _asked(snapshot, request)
        ours = [guest for guest in requested if not _stays(guest, request)]
        chosen = {guest.uuid for guest in ours}
        skipped = tuple(guest for guest in requested if guest.uuid not in chosen)
        return cls(
            guests=tuple(ours),
            skipped=skipped,
            nova_pinned=tuple(guest for guest in skipped if _places_emulator(guest, request)),
            moving=tuple(moving(snapshot, request, managed_processes(snapshot, placement) if placement else ())),
        )

    def threads(self) -> dict[Target, tuple[Thread, ...]]:
        placed: dict[Target, tuple[Thread, ...]] = {}
        for guest in self.guests:
            placed |= guest.threads_by_target
        for guest in self.nova_pinned:
            parts = guest.threads_by_target.items()
            placed |= {target: threads for target, threads in parts if target.kind in QEMUS_OWN}
        return placed | {move.target: move.threads for move in self.moving}

    def left_out(self, allocatable: AllocatableCpus, request: Request) -> Iterator[LeftOut]:
        yield from (LeftOut(guest.target, why_skipped(guest, allocatable, request)) for guest in self.skipped)
        for guest in self.guests:
            yield from (LeftOut(guest.vcpu_targets[vcpu], DEFERRED) for vcpu in guest.unplugged)
        for guest in (*self.guests, *self.nova_pinned):
            yield from (LeftOut(target, NOT_PERMITTED) for target in guest.forbidden_targets)


@dataclass(frozen=True)
class Context:
    """A host, divided into what a request places and what not. It has no slots, so that it can keep facts."""

    snapshot: Snapshot
    request: Request
    allocatable: AllocatableCpus
    guests: tuple[Guest, ...]
    """By vCPUs, descending, so that small ones fill the gaps; then by UUID."""
    others: tuple[Guest, ...]
    """Not requested, excluded, or pinned by Nova or an operator."""
    nova_pinned: tuple[Guest, ...]
    """Of ``others``: the plan places their other threads."""
    moving: tuple[Moving, ...]
    threads: Mapping[Target, tuple[Thread, ...]]
    settings: Mapping[Target, State]
    skipped: tuple[LeftOut, ...]
    placement: Placement | None
    places: Mapping[TargetKey, CpuSet]
    """Empty for a rebalance."""
    anew: bool = False
    """The sets do not stay as recorded."""
    joined: Roles | None = None
    """The host's strategy has these; another one places these guests beside them."""
    taken: CpuSet = CpuSet()
    """CPUs that other guests have alone: of another strategy of this plan, without a place, or not of this request."""
    elsewhere: Mapping[str, CpuSet] = field(default_factory=dict)
    """By UUID, of other strategies' guests: CPUs that they get or keep, none before they are placed. Others stay."""
    bounds: Mapping[str, NumaBound] = field(default_factory=dict)
    """By UUID."""
    cores: Mapping[str, CpuSet] = field(default_factory=dict)
    """The only CPUs for a guest's vCPUs, by UUID: of one class, or one place (explain)."""
    crowded: frozenset[str] = frozenset()
    """Of ``cores``: no cluster has a CPU for each vCPU, though the guest's other bounds have."""
    replaced: frozenset[str] = frozenset()
    """Placed anew, whatever CPUs they have; by UUID."""
    lenient: bool = False
    """A pin by hand that breaks a rule is left out, with the reason; else it is an error."""

    @classmethod
    def of(
        cls, snapshot: Snapshot, request: Request, placement: Placement | None = None, *, lenient: bool = False
    ) -> "Context":
        """Unless ``lenient``, raises NotFound for a guest or process that the host does not have, and Invalid for a
        guest that does not run, and for a threshold that no process can exceed."""
        if not lenient:
            require_running_guests(snapshot, request)
            require_asked(snapshot, request)
            require_threshold(snapshot, request)
        snapshot = released(in_order(snapshot), request)
        if placement is not None:
            snapshot = without_own_masks(snapshot, placement)
        scope = _Scope.of(snapshot, request, placement)
        chosen = {guest.uuid for guest in scope.guests}
        # Strategies make partitions, or leave those that are there out of their sets.
        bound = within_partitions(scope.guests, snapshot) if request.placement else scope.guests
        allocatable = allocatable_cpus(snapshot, request, _in_use(placement), hosts_own=_hosts_own(placement))
        return cls(
            snapshot=snapshot,
            request=request,
            allocatable=allocatable,
            guests=tuple(sorted(scope.guests, key=lambda guest: (-len(guest.plugged), guest.uuid))),
            others=tuple(guest for guest in snapshot.guests if guest.uuid not in chosen),
            nova_pinned=scope.nova_pinned,
            moving=scope.moving,
            threads=scope.threads(),
            settings=settings(snapshot),
            skipped=tuple(scope.left_out(allocatable, request)) + tuple(staying(snapshot, request)),
            placement=placement,
            places=_places(placement, request),
            bounds=bounds_of(bound, snapshot.topology),
            lenient=lenient,
            taken=own_of_others(snapshot, request, chosen) - allocatable.isolated,
        )

    def restricted_since(self) -> Iterator[RestrictedAffinity]:
        return restricted_since(self.snapshot, self.request, _in_use(self.placement))

    def resolve(self, *, isolating: bool = False, apart: bool = False) -> Resolved:
        """Raises NoFit where guests are to place, and others have all CPUs for vCPUs to themselves."""
        modes = {"isolating": isolating, "apart": apart, "anew": self.anew}
        resolved = resolve(self.allocatable, self.request, recorded=self.roles, joined=self.joined, **modes)
        if isolating or not (taken := resolved.roles.vcpu & self.taken):
            return resolved
        left = resolved.roles.vcpu - taken
        if not left and not apart:
            left = taken & possible_pools(self.others, self.request)
        if not left and self.guests:
            raise NoFit(1, 0, f"guests that have CPUs to themselves leave none of the CPUs for vCPUs ({taken})")
        return replace(resolved, roles=replace(resolved.roles, vcpu=left))

    def groups(self, guest: Guest) -> tuple[VcpuGroup, ...]:
        if (groups := self._groups.get(guest.uuid)) is None:
            groups = self._groups[guest.uuid] = self._groups_of(guest)
        return groups

    @cached_property
    def irqs(self) -> Mapping[TargetKey, DeviceIrq]:
        return {irq.target.key: irq for irq in (self.snapshot.irqs or DeviceIrqs()).irqs}

    @cached_property
    def of_others(self) -> CpuSet:
        """CPUs that vCPUs of guests have to themselves which this request does not place."""
        pinned = union(each.cpus for each in self.allocatable.restrictions if each.guest)
        return union(own_cpus(guest) for guest in self.others) | pinned

    def own_within(self, cgroup: str) -> CpuSet:
        """CPUs of guests in a cgroup that this request does not place: those that an operator's pins own."""
        inside = {guest.uuid for guest in self.others if any(each.path == cgroup for each in guest.cgroups)}
        return union(each.cpus for each in self.allocatable.restrictions if each.guest in inside)

    @cached_property
    def _groups(self) -> dict[str, tuple[VcpuGroup, ...]]:
        return {}

    @cached_property
    def _recorded(self) -> Mapping[str, Mapping[int, CpuSet]]:
        by_guest: dict[str, dict[int, CpuSet]] = {}
        for (kind, owner, part), cpus in self.places.items():
            if kind == "vcpu" and part is not None:
                by_guest.setdefault(owner, {})[part] = cpus
        return by_guest

    def _groups_of(self, guest: Guest) -> tuple[VcpuGroup, ...]:
        here, cores = guest.plugged, self.cores.get(guest.uuid)
        bound = self.bounds.get(guest.uuid) or NumaBound((VcpuGroup(here),), None)
        clusters = self.snapshot.topology.clusters if guest.uuid in self.crowded else ()
        groups = bound.groups if cores is None else (each.of_cores(cores, clusters) for each in bound.groups)
        if guest.cpu_limits and not is_bound_to_nodes(guest) and cores is None:
            # Where all guests have this limit, the sets are inside, and the guest is placed like one without a bound.
            anywhere = self.allocatable.for_guests(self.allocatable.online)
            groups = (VcpuGroup(each.vcpus) if anywhere <= each.within(anywhere) else each for each in groups)
        present = ((group, tuple(vcpu for vcpu in group.vcpus if vcpu in here)) for group in groups)
        return tuple(replace(group, vcpus=vcpus) for group, vcpus in present if vcpus) or (VcpuGroup(()),)

    def near(self, guest: Guest, cpus: CpuSet) -> CpuSet:
        bound = self.bounds.get(guest.uuid)
        return cpus if bound is None or bound.nodes is None else cpus & bound.nodes

    def with_hosts_vcpus(self, roles: Roles) -> Roles:
        """The vCPU set is also that of the host's strategy."""
        return roles if self.joined is None else replace(roles, vcpu=roles.vcpu | self.joined.vcpu)

    def memory_balance(self) -> MemoryBalance:
        ours = {guest.uuid for guest in self.guests}
        every = self.snapshot.guests
        now = {guest.uuid: union(guest.vcpu_affinities.values()) for guest in every}
        elsewhere = {uuid: cpus for uuid, cpus in {**now, **self.elsewhere}.items() if uuid not in ours}
        return MemoryBalance.of(self.snapshot.topology, every, elsewhere)

    @property
    def roles(self) -> Roles | None:
        """The recorded sets; None also for a rebalance."""
        return None if self.placement is None or self.request.rebalance else self.placement.roles

    def recorded(self, guest: Guest) -> dict[int, CpuSet]:
        if not self.places or guest.uuid in self.replaced:
            return {}
        known = self._recorded.get(guest.uuid, {})
        return {vcpu: known[vcpu] for vcpu in guest.plugged if vcpu in known}

    def current(self, guest: Guest) -> Mapping[int, CpuSet]:
        if self.request.rebalance or guest.uuid in self.replaced:
            return {}
        return guest.vcpu_affinities


def target_threads(
    snapshot: Snapshot, request: Request, placement: Placement | None
) -> Mapping[Target, tuple[Thread, ...]]:
    if placement is not None:
        snapshot = without_own_masks(snapshot, placement)
    return _Scope.of(snapshot, request, placement).threads()


def vcpu_masks(snapshot: Snapshot, wanted: Iterable[Wanted]) -> dict[Target, CpuSet]:
    """A vCPU that the plan does not place keeps its own."""
    placed = {want.target: want.cpus for want in wanted if want.target.kind == "vcpu"}
    return {
        target: placed.get(target, vcpu.thread.affinity)
        for guest in snapshot.guests
        for vcpu in guest.vcpus
        for target in [guest.vcpu_targets[vcpu.id]]
        if vcpu.thread
    }


def _in_use(placement: Placement | None) -> CpuSet:
    return CpuSet() if placement is None else placement.roles.cpus


def _hosts_own(placement: Placement | None) -> CpuSet:
    return CpuSet() if placement is None else placement.roles.housekeeping | placement.roles.emulator


def _places(placement: Placement | None, request: Request) -> dict[TargetKey, CpuSet]:
    if placement is None or request.rebalance:
        return {}
    return {each.target.key: each.cpus for each in placement.placed}


def _stays(guest: Guest, request: Request) -> bool:
    return guest.dedicated or is_excluded_guest(guest, request) or is_left_to_operator(guest, request)


def _places_emulator(guest: Guest, request: Request) -> bool:
    floating = guest.dedicated and not guest.emulator.policy
    return request.nova_emulators and floating and not is_excluded_guest(guest, request)


def _asked(snapshot: Snapshot, request: Request) -> list[Guest]:
    if request.fix or (request.placement and not request.guests):
        return []
    return [guest for guest in snapshot.guests if not request.guests or is_named(guest, request.guests)]


def why_skipped(guest: Guest, allocatable: AllocatableCpus, request: Request) -> str:
    if guest.unread:
        return f"it cannot be read: {guest.unread}"
    if guest.dedicated:
        return f"Nova dedicates CPUs {nova_cpus(guest, allocatable.online)} to it{_emulators(guest, request)}"
    own = owned_in_words(guest, allocatable)
    if is_excluded_guest(guest, request):
        return f"{_why_excluded(guest)}{own if pins_of(guest) else ''}"
    return f"{pins_in_words(guest)}{own or '; it owns no CPU'}; to place it, name it in guests (--guest)"


def _why_excluded(guest: Guest) -> str:
    if exclusions.is_excluded_by_flavor(guest):
        return f"its flavor excludes it ({exclusions.EXCLUDED})"
    if guest.is_migrating:
        return "its migration has not ended"
    if guest.leaving:
        return "it is being migrated away"
    return "its metadata excludes it (pin-off)" if guest.excluded else "the request excludes it (excluded_guests)"


def _emulators(guest: Guest, request: Request) -> str:
    if not request.nova_emulators or is_excluded_guest(guest, request):
        return ""
    if guest.emulator.policy:
        return f"; Nova pins its emulator threads too (hw:emulator_threads_policy {guest.emulator.policy})"
    return "; only its emulator threads are placed"


T = TypeVar("T")
_ID, _TID = attrgetter("id"), attrgetter("tid")


def in_order(snapshot: Snapshot) -> Snapshot:
    """By UUIDs and ids. What is in order stays the same object: it keeps derived tables."""
    return replace(
        snapshot,
        topology=_topology_in_order(snapshot.topology),
        guests=_by_key(map(_guest_in_order, snapshot.guests), attrgetter("uuid")),
        processes=_by_key(map(_process_in_order, snapshot.processes), attrgetter("pid", "started")),
    )


def _topology_in_order(topology: Topology) -> Topology:
    cpus = _by_key(topology.cpus, _ID)
    nodes = _by_key(topology.nodes, _ID)
    devices = _by_key(topology.devices, attrgetter("kind", "name"))
    if (cpus, nodes, devices) == (topology.cpus, topology.nodes, topology.devices):
        return topology
    return replace(topology, cpus=cpus, nodes=nodes, devices=devices)


def _guest_in_order(guest: Guest) -> Guest:
    vcpus = _by_key(guest.vcpus, _ID)
    emulators = _by_key(guest.emulator.threads, _TID)
    iothreads = _by_key(guest.iothreads, _ID)
    vhosts = _by_key(guest.vhost_threads, _TID)
    memory, pci = tuple(sorted(guest.memory_per_node.items())), tuple(sorted(guest.pci))
    now = guest.vcpus, guest.emulator.threads, guest.iothreads, guest.vhost_threads
    if (vcpus, emulators, iothreads, vhosts) == now and (memory, pci) == (
        tuple(guest.memory_per_node.items()),
        guest.pci,
    ):
        return guest
    return replace(
        guest,
        vcpus=vcpus,
        emulator=replace(guest.emulator, threads=emulators),
        iothreads=iothreads,
        vhost_threads=vhosts,
        memory_per_node=dict(memory),
        pci=pci,
    )


def _process_in_order(process: Process) -> Process:
    threads = _by_key(process.threads, _TID)
    return process if threads == process.threads else replace(process, threads=threads)


def _by_key(values: Iterable[T], key: Callable[[T], Any]) -> tuple[T, ...]:
    return tuple(sorted(values, key=key))


def roles_now(context: Context) -> Roles:
    vcpus = vcpu_cpus(context.snapshot)
    emulators = emulator_cpus(context.snapshot) - vcpus
    return Roles(context.allocatable.online - vcpus - emulators - context.allocatable.reserved, emulators, vcpus)
