"""What a strategy gets to see: a snapshot, read for one request."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pinner.model.change import State, Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import NotFound
from pinner.model.guest import Guest, nova_cpus
from pinner.model.nova import QEMUS_OWN
from pinner.model.placement import Placement
from pinner.model.plan import LeftOut, Roles
from pinner.model.process import Thread
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import flavors
from pinner.planning.allocatable_cpus import AllocatableCpus, RestrictedAffinity
from pinner.planning.exclusions import is_excluded_guest, is_named
from pinner.planning.partitions import settings
from pinner.planning.placement.process_matching import Key, key, managed_processes, without_own_masks
from pinner.planning.processes import Moving, allocatable_cpus, disputes, moving, require_asked, staying
from pinner.planning.roles import Resolved, resolve

DEFERRED = "deferred: it is not plugged in, and its pin could not be read back; the next plan after that places it"
"""Why an unplugged vCPU is left out; libvirt would accept its pin, and store it."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """The guests and processes of a host, divided into those that a request places and those that it skips."""

    guests: tuple[Guest, ...]
    skipped: tuple[Guest, ...]
    """Guests that the request asks for, but that are excluded or pinned by Nova."""
    nova_pinned: tuple[Guest, ...]
    """Those of the skipped guests whose QEMU's own threads are to be placed."""
    moving: tuple[Moving, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, request: Request, placement: Placement | None) -> "_Scope":
        asked = _asked(snapshot, request)
        ours = [guest for guest in asked if not (guest.dedicated or is_excluded_guest(guest, request))]
        chosen = {guest.uuid for guest in ours}
        skipped = tuple(guest for guest in asked if guest.uuid not in chosen)
        return cls(
            guests=tuple(ours),
            skipped=skipped,
            nova_pinned=tuple(guest for guest in skipped if _places_emulator(guest, request)),
            moving=tuple(moving(snapshot, request, managed_processes(snapshot, placement) if placement else ())),
        )

    def threads(self) -> dict[Target, tuple[Thread, ...]]:
        found = dict(_threads(self.guests, self.nova_pinned))
        return found | {move.target: move.threads for move in self.moving}


@dataclass(frozen=True, slots=True)
class Context:
    """A host as a request divides it into what is ours to place and what is not."""

    snapshot: Snapshot
    request: Request
    allocatable: AllocatableCpus
    guests: tuple[Guest, ...]
    """Those to place: the largest first, so that small ones fill the gaps; then by UUID."""
    others: tuple[Guest, ...]
    """Those to leave alone: not asked for, or pinned by Nova."""
    nova_pinned: tuple[Guest, ...]
    """Those of them whose vCPUs Nova pinned, and whose QEMU's own threads are to be placed."""
    moving: tuple[Moving, ...]
    """The processes to place."""
    threads: Mapping[Target, tuple[Thread, ...]]
    """Everything that may be placed, with the threads that this concerns."""
    settings: Mapping[Target, State]
    """What has a state instead of threads, with its state."""
    skipped: tuple[LeftOut, ...]
    placement: Placement | None
    """What stands already, to be kept to as far as it can be."""
    places: Mapping[Key, CpuSet]
    """Where each target belongs by what stands; none where all is packed anew."""
    joined: Roles | None = None
    """The sets of the host's strategy, where another one places these guests on the CPUs that it leaves them."""

    @classmethod
    def of(
        cls, snapshot: Snapshot, request: Request, placement: Placement | None = None, *, lenient: bool = False
    ) -> "Context":
        """Read a snapshot. Raises NotFound for a guest or process that is asked for and not there, unless ``lenient``.

        ``standing`` is what stands of the same request.
        """
        if not lenient:
            _require_guests(snapshot, request)
            require_asked(snapshot, request)
        if placement is not None:
            snapshot = without_own_masks(snapshot, placement)
        scope = _Scope.of(snapshot, request, placement)
        chosen = {guest.uuid for guest in scope.guests}
        allocatable = allocatable_cpus(snapshot, request, _in_use(placement))
        return cls(
            snapshot=snapshot,
            request=request,
            allocatable=allocatable,
            guests=tuple(sorted(scope.guests, key=lambda guest: (-len(plugged(guest)), guest.uuid))),
            others=tuple(guest for guest in snapshot.guests if guest.uuid not in chosen),
            nova_pinned=scope.nova_pinned,
            moving=scope.moving,
            threads=scope.threads(),
            settings=settings(snapshot),
            skipped=(
                *(LeftOut(guest_target(guest), _why_left(guest, allocatable, request)) for guest in scope.skipped),
                *(LeftOut(vcpu_target(guest, vcpu), DEFERRED) for guest in scope.guests for vcpu in unplugged(guest)),
                *staying(snapshot, request),
            ),
            placement=placement,
            places=_places(placement, request),
        )

    def disputes(self) -> Iterator[RestrictedAffinity]:
        """CPUs of what stands on which processes were put on purpose since."""
        return disputes(self.snapshot, self.request, _in_use(self.placement))

    def resolve(self, *, isolating: bool = False) -> Resolved:
        """The sets of CPUs for each role. See roles.resolve."""
        return resolve(self.allocatable, self.request, isolating=isolating, placement=self.roles, joined=self.joined)

    @property
    def roles(self) -> Roles | None:
        """The sets that stand."""
        return None if self.placement is None or self.request.rebalance else self.placement.roles

    def recorded(self, guest: Guest) -> dict[int, CpuSet]:
        """The place of each of the guest's vCPUs by what stands; a vCPU that has none is left out."""
        found = {vcpu: self.places.get(("vcpu", guest.uuid, vcpu)) for vcpu in plugged(guest)}
        return {vcpu: cpus for vcpu, cpus in found.items() if cpus is not None}

    def current(self, guest: Guest) -> dict[int, CpuSet]:
        """Where each of the guest's vCPUs may run now; empty where all is packed anew."""
        if self.request.rebalance:
            return {}
        return {vcpu.id: vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread}


def target_threads(
    snapshot: Snapshot, request: Request, placement: Placement | None
) -> Mapping[Target, tuple[Thread, ...]]:
    """Every target that the request may place, with the threads that this concerns: ``Context.threads`` alone."""
    if placement is not None:
        snapshot = without_own_masks(snapshot, placement)
    return _Scope.of(snapshot, request, placement).threads()


def plugged(guest: Guest) -> list[int]:
    """The numbers of the vCPUs that have a thread."""
    return [vcpu.id for vcpu in guest.vcpus if vcpu.thread is not None]


def unplugged(guest: Guest) -> list[int]:
    """The numbers of the vCPUs that have no thread yet."""
    return [vcpu.id for vcpu in guest.vcpus if vcpu.thread is None]


def guest_target(guest: Guest) -> Target:
    """The guest as a whole: what a plan that leaves it out names."""
    return Target("guest", guest.uuid, None, guest.name)


def vcpu_target(guest: Guest, vcpu: int) -> Target:
    """The guest's vCPU of this number."""
    return Target("vcpu", guest.uuid, vcpu, guest.name)


def guest_targets(guest: Guest) -> Iterator[tuple[Target, tuple[Thread, ...]]]:
    """All of a guest that has an affinity of its own, with its threads; what has no thread now is left out."""
    if guest.emulator.threads:
        yield Target("emulator", guest.uuid, None, guest.name), guest.emulator.threads
    for vhost in guest.vhost_threads:
        yield Target("vhost", guest.uuid, vhost.tid, guest.name), (vhost,)
    for iothread in guest.iothreads:
        if iothread.thread:
            yield Target("iothread", guest.uuid, iothread.id, guest.name), (iothread.thread,)
    for vcpu in guest.vcpus:
        if vcpu.thread:
            yield vcpu_target(guest, vcpu.id), (vcpu.thread,)


def _threads(ours: Iterable[Guest], nova_pinned: Iterable[Guest]) -> Iterator[tuple[Target, tuple[Thread, ...]]]:
    for guest in ours:
        yield from guest_targets(guest)
    for guest in nova_pinned:
        yield from (each for each in guest_targets(guest) if each[0].kind in QEMUS_OWN)


def _in_use(placement: Placement | None) -> CpuSet:
    return CpuSet() if placement is None else placement.roles.cpus


def _places(placement: Placement | None, request: Request) -> dict[Key, CpuSet]:
    if placement is None or request.rebalance:
        return {}
    return {key(each.target): each.cpus for each in placement.placed}


def _places_emulator(guest: Guest, request: Request) -> bool:
    floating = guest.dedicated and not guest.emulator.policy
    return request.nova_emulators and floating and not is_excluded_guest(guest, request)


def _why_left(guest: Guest, allocatable: AllocatableCpus, request: Request) -> str:
    if guest.dedicated:
        return f"Nova dedicates CPUs {nova_cpus(guest, allocatable.online)} to it{_emulators(guest, request)}"
    if flavors.excluded(guest):
        return f"its flavor says to leave it alone ({flavors.EXCLUDED})"
    if guest.leaving:
        return "it is being migrated away"
    return "its metadata says to leave its CPUs alone (pin-off)" if guest.excluded else "it is exempt"


def _emulators(guest: Guest, request: Request) -> str:
    """What becomes of QEMU's own threads where they were to be placed."""
    if not request.nova_emulators or is_excluded_guest(guest, request):
        return ""
    if guest.emulator.policy:
        return (
            f"; its emulator threads stay, for Nova pins them, too (hw:emulator_threads_policy {guest.emulator.policy})"
        )
    return "; its emulator threads alone are placed"


def _require_guests(snapshot: Snapshot, request: Request) -> None:
    for name in request.guests:
        if not any(name in (guest.uuid, guest.name) for guest in snapshot.guests):
            raise NotFound("guest", name, tuple(sorted(guest.name for guest in snapshot.guests)))


def _asked(snapshot: Snapshot, request: Request) -> list[Guest]:
    return [guest for guest in snapshot.guests if not request.guests or is_named(guest, request.guests)]
