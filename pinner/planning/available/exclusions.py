"""What the request, metadata and flavors exclude or ask for."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from uuid import UUID

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NotFound
from pinner.model.guest.guest import Guest, own_vcpu_pins
from pinner.model.machine.process import Process
from pinner.model.plan.plan import Wanted
from pinner.model.plan.request import EXCLUSIVE, MANUAL, Request
from pinner.model.snapshot import Snapshot


def is_excluded_guest(guest: Guest, request: Request) -> bool:
    moves = guest.leaving or guest.is_migrating
    return guest.excluded or moves or is_excluded_by_flavor(guest) or is_named(guest, request.excluded_guests)


def is_named(guest: Guest, names: Container[str]) -> bool:
    return guest.name in names or guest.uuid in names


def names(name: str, target: Target, snapshot: Snapshot) -> bool:
    """Whether it names this guest or process. An id names nobody else: any user may name a process or a guest like the
    id of another one."""
    if target.kind == "process":
        ids = {str(process.pid) for process in snapshot.processes}
    else:
        ids = {guest.uuid for guest in snapshot.guests} | {guest.uuid for guest in snapshot.inactive}
    return name == target.owner or (name == target.name and name not in ids)


def is_excluded_process(process: Process, request: Request) -> bool:
    named = request.excluded_processes
    return process.name in named or (bool(process.unit) and process.unit in named)


def asked_for(process: Process, request: Request) -> bool:
    names = request.processes
    return bool(names) and (process.name in names or str(process.pid) in names)


def own_cpus(guest: Guest) -> CpuSet:
    """CPUs that vCPUs have one by one; pinner's own pins, which an excluded guest keeps, are no claim of its
    owner's."""
    return _pinned(guest, own_vcpu_pins(guest))


def pinned_cpus(guest: Guest) -> CpuSet:
    """CPUs that vCPUs have one by one, whoever pinned them: one that the kernel does not balance has no room for
    another vCPU."""
    return _pinned(guest, {})


def _one_to_one_cpus(guest: Guest) -> CpuSet:
    """CPUs that pinner gave to its vCPUs, one to each; none where it gave some vCPUs several, or one to several."""
    masks, own = guest.vcpu_affinities, own_vcpu_pins(guest)
    cpus = union(masks.values())
    return cpus if masks and masks.items() <= own.items() and len(cpus) == sum(map(len, masks.values())) else CpuSet()


def own_of_others(snapshot: Snapshot, request: Request, chosen: Collection[str]) -> CpuSet:
    """CPUs that the vCPUs of guests have one by one that an earlier request placed so, and this one does not place.
    ``chosen``: the guests of this one, by UUID."""
    others = (guest for guest in snapshot.guests if guest.uuid not in chosen and not guest.dedicated)
    return union(_one_to_one_cpus(guest) for guest in others if not is_excluded_guest(guest, request))


def possible_pools(guests: Iterable[Guest], request: Request) -> CpuSet:
    """CPUs of single vCPUs, unless a CPU of their own is asked for."""
    single = (guest for guest in guests if len(guest.vcpu_affinities) == 1 and not is_exclusive(guest, request))
    return union(map(_one_to_one_cpus, single))


def _pinned(guest: Guest, leaving_out: Mapping[int, CpuSet]) -> CpuSet:
    masks = guest.vcpu_affinities.items()
    return union(mask for vcpu, mask in masks if len(mask) == 1 and mask != leaving_out.get(vcpu)) - guest.pooled


def require_known_guests(snapshot: Snapshot, names: Iterable[str], *, by_uuid: bool = False) -> None:
    """Raises NotFound. ``by_uuid`` accepts every UUID in small letters: a name is mistyped more easily."""
    for name in unknown_guests(snapshot, names):
        if not (by_uuid and _is_uuid(name)):
            raise NotFound("guest", name, tuple(sorted(name for name, _ in _known_guests(snapshot))))


def unknown_guests(snapshot: Snapshot, names: Iterable[str]) -> tuple[str, ...]:
    """``names`` may be UUIDs."""
    known = {text for guest in _known_guests(snapshot) for text in guest}
    return tuple(name for name in names if name not in known)


def _known_guests(snapshot: Snapshot) -> list[tuple[str, str]]:
    known = [(guest.name, guest.uuid) for guest in snapshot.guests]
    return known + [(guest.name, guest.uuid) for guest in snapshot.inactive]


def _is_uuid(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


def require_running_guests(snapshot: Snapshot, request: Request) -> None:
    """Raises NotFound, and Invalid for one that is shut off."""
    require_known_guests(snapshot, request.guests)
    for guest in snapshot.inactive:
        if guest.name in request.guests or guest.uuid in request.guests:
            raise Invalid("guests", guest.name, "a running guest; this one is shut off", guest=guest.uuid)


EXCLUDED = "pinner:excluded"
STRATEGY = "pinner:strategy"
_PREFIX = "pinner:"


def is_excluded_by_flavor(guest: Guest) -> bool:
    value = _specs(guest).get(EXCLUDED, "")
    return bool(value) and _boolean(value) is True


def strategy_of_flavor(guest: Guest, known: Collection[str]) -> str:
    """Empty where it asks for none of ``known``, or for a placement by hand."""
    strategy = _specs(guest).get(STRATEGY, "")
    return strategy if strategy not in ("", MANUAL) and strategy in known else ""


def is_exclusive(guest: Guest, request: Request) -> bool:
    """Where each of its vCPUs has one CPU, it has this CPU to itself."""
    return EXCLUSIVE in (request.strategy, _specs(guest).get(STRATEGY))


def exclusive_cpus(guests: Iterable[Guest], request: Request, wanted: Iterable[Wanted]) -> CpuSet:
    """CPUs that vCPUs of these guests get to themselves."""
    exclusive = {guest.uuid for guest in guests if is_exclusive(guest, request)}
    vcpus = (want for want in wanted if want.target.kind == "vcpu") if exclusive else ()
    return union(want.cpus for want in vcpus if want.target.owner in exclusive and len(want.cpus) == 1)


def warnings_of_flavor(guest: Guest, known: Collection[str]) -> Iterator[str]:
    for spec, value in sorted(_specs(guest).items()):
        whose = f"guest {guest.name}: its flavor has {spec}"
        if spec == EXCLUDED and _boolean(value) is None:
            yield f"{whose} = {value!r}, which has no effect; valid is true or false"
        # All names are asked for only here: that loads the plug-ins, and fails where one of them does not load.
        elif spec == STRATEGY and (value == MANUAL or value not in known):
            yield f"{whose} = {value!r}, which has no effect; valid is {' or '.join(sorted({*known} - {MANUAL}))}"
        elif spec.startswith(_PREFIX) and spec not in (EXCLUDED, STRATEGY):
            yield f"{whose}, which pinner does not know; valid are {EXCLUDED} and {STRATEGY}"


def _boolean(value: str) -> bool | None:
    """As Nova reads it; None for other texts."""
    # Few flavors have the setting, and the import takes longer than a plan.
    from oslo_utils import strutils

    try:
        boolean: bool = strutils.bool_from_string(value, strict=True)
    except ValueError:
        return None
    return boolean


def _specs(guest: Guest) -> dict[str, str]:
    return dict(guest.nova.extra_specs) if guest.nova else {}
