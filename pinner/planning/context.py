"""What a strategy gets to see: a snapshot, read for one request."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pinner.model.cpuset import CpuSet
from pinner.model.errors import NotFound
from pinner.model.guest import Guest, nova_cpus
from pinner.model.nova import QEMUS_OWN
from pinner.model.plan import LeftOut, Roles, Target
from pinner.model.policy import Standing
from pinner.model.process import Thread
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import flavors
from pinner.planning.exemptions import exempt_guest, is_named
from pinner.planning.partitions import settings
from pinner.planning.processes import Moving, disputes, moving, require_asked, staying, supply_of
from pinner.planning.residents import Key, key, recognised, residents
from pinner.planning.roles import Resolved, resolve
from pinner.planning.supply import Claim, Supply

DEFERRED = "deferred: it is not plugged in, and its pin could not be read back; the next plan after that places it"
"""Why an unplugged vCPU is left out; libvirt would accept its pin, and store it."""


@dataclass(frozen=True, slots=True)
class Context:
    """A host as a request divides it into what is ours to place and what is not."""

    snapshot: Snapshot
    request: Request
    supply: Supply
    guests: tuple[Guest, ...]
    """Those to place: the largest first, so that small ones fill the gaps; then by UUID."""
    others: tuple[Guest, ...]
    """Those to leave alone: not asked for, or pinned by Nova."""
    attended: tuple[Guest, ...]
    """Those of them whose vCPUs Nova pinned, and whose QEMU's own threads are to be placed."""
    moving: tuple[Moving, ...]
    """The processes to place."""
    threads: Mapping[Target, tuple[Thread, ...]]
    """Everything that may be placed, with the threads that this concerns."""
    settings: Mapping[Target, str]
    """What has a state instead of threads, with its state."""
    left_alone: tuple[LeftOut, ...]
    standing: Standing | None
    """What stands already, to be kept to as far as it can be."""
    places: Mapping[Key, CpuSet]
    """Where each target belongs by what stands; none where all is packed anew."""
    joined: Roles | None = None
    """The sets of the host's strategy, where another one places these guests on the CPUs that it leaves them."""

    @classmethod
    def of(
        cls, snapshot: Snapshot, request: Request, standing: Standing | None = None, *, lenient: bool = False
    ) -> "Context":
        """Read a snapshot. Raises NotFound for a guest or process that is asked for and not there, unless ``lenient``.

        ``standing`` is what stands of the same request.
        """
        if not lenient:
            _require_guests(snapshot, request)
            require_asked(snapshot, request)
        if standing is not None:
            snapshot = recognised(snapshot, standing)
        asked = _asked(snapshot, request)
        ours = [guest for guest in asked if not (guest.dedicated or exempt_guest(guest, request))]
        chosen = {guest.uuid for guest in ours}
        theirs = [guest for guest in asked if guest.uuid not in chosen]
        attended = tuple(guest for guest in theirs if _attended(guest, request))
        moves = tuple(moving(snapshot, request, residents(snapshot, standing) if standing else ()))
        supply = supply_of(snapshot, request, _in_use(standing))
        return cls(
            snapshot=snapshot,
            request=request,
            supply=supply,
            guests=tuple(sorted(ours, key=lambda guest: (-len(plugged(guest)), guest.uuid))),
            others=tuple(guest for guest in snapshot.guests if guest.uuid not in chosen),
            attended=attended,
            moving=moves,
            threads=dict(_threads(ours, attended)) | {move.target: move.threads for move in moves},
            settings=settings(snapshot),
            left_alone=(
                *(LeftOut(f"guest {guest.name}", _why_left(guest, supply, request)) for guest in theirs),
                *(LeftOut(f"guest {guest.name} vcpu {vcpu}", DEFERRED) for guest in ours for vcpu in unplugged(guest)),
                *staying(snapshot, request),
            ),
            standing=standing,
            places=_places(standing, request),
        )

    def disputes(self) -> Iterator[Claim]:
        """CPUs of what stands on which processes were put on purpose since."""
        return disputes(self.snapshot, self.request, _in_use(self.standing))

    def resolve(self, *, isolating: bool = False) -> Resolved:
        """The sets of CPUs for each role. See roles.resolve."""
        return resolve(self.supply, self.request, isolating=isolating, standing=self.roles, joined=self.joined)

    @property
    def roles(self) -> Roles | None:
        """The sets that stand."""
        return None if self.standing is None or self.request.repack else self.standing.roles

    def stood(self, guest: Guest) -> dict[int, CpuSet]:
        """The place of each of the guest's vCPUs by what stands; a vCPU that has none is left out."""
        found = {vcpu: self.places.get(("vcpu", guest.uuid, vcpu)) for vcpu in plugged(guest)}
        return {vcpu: cpus for vcpu, cpus in found.items() if cpus is not None}

    def sitting(self, guest: Guest) -> dict[int, CpuSet]:
        """Where each of the guest's vCPUs may run now; empty where all is packed anew."""
        if self.request.repack:
            return {}
        return {vcpu.id: vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread}


def plugged(guest: Guest) -> list[int]:
    """The numbers of the vCPUs that have a thread."""
    return [vcpu.id for vcpu in guest.vcpus if vcpu.thread is not None]


def unplugged(guest: Guest) -> list[int]:
    """The numbers of the vCPUs that have no thread yet."""
    return [vcpu.id for vcpu in guest.vcpus if vcpu.thread is None]


def guest_targets(guest: Guest) -> Iterator[tuple[Target, tuple[Thread, ...]]]:
    """All of a guest that has an affinity of its own, with its threads; what has no thread now is left out."""
    if guest.emulator.threads:
        yield Target("emulator", guest.uuid, None, guest.name), guest.emulator.threads
    for helper in guest.helpers:
        yield Target("helper", guest.uuid, helper.tid, guest.name), (helper,)
    for iothread in guest.iothreads:
        if iothread.thread:
            yield Target("iothread", guest.uuid, iothread.id, guest.name), (iothread.thread,)
    for vcpu in guest.vcpus:
        if vcpu.thread:
            yield Target("vcpu", guest.uuid, vcpu.id, guest.name), (vcpu.thread,)


def _threads(ours: Iterable[Guest], attended: Iterable[Guest]) -> Iterator[tuple[Target, tuple[Thread, ...]]]:
    for guest in ours:
        yield from guest_targets(guest)
    for guest in attended:
        yield from (each for each in guest_targets(guest) if each[0].kind in QEMUS_OWN)


def _in_use(standing: Standing | None) -> CpuSet:
    return CpuSet() if standing is None else standing.roles.cpus


def _places(standing: Standing | None, request: Request) -> dict[Key, CpuSet]:
    if standing is None or request.repack:
        return {}
    return {key(each.target): each.cpus for each in standing.placed}


def _attended(guest: Guest, request: Request) -> bool:
    floating = guest.dedicated and not guest.emulator.policy
    return request.nova_emulators and floating and not exempt_guest(guest, request)


def _why_left(guest: Guest, supply: Supply, request: Request) -> str:
    if guest.dedicated:
        return f"Nova dedicates CPUs {nova_cpus(guest, supply.online)} to it{_emulators(guest, request)}"
    if flavors.exempt(guest):
        return f"its flavor says to leave it alone ({flavors.EXEMPT})"
    if guest.leaving:
        return "it is being migrated away"
    return "its metadata says to leave its CPUs alone (pin-off)" if guest.exempt else "it is exempt"


def _emulators(guest: Guest, request: Request) -> str:
    """What becomes of QEMU's own threads where they were to be placed."""
    if not request.nova_emulators or exempt_guest(guest, request):
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
