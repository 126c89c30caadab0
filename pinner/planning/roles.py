"""The three sets of CPUs - housekeeping, emulator, vCPU - as a request and a host resolve to them."""

from collections.abc import Mapping
from dataclasses import dataclass

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.plan import Roles
from pinner.model.request import AUTO, Request
from pinner.planning.allocatable_cpus import AllocatableCpus

_PART = 8
"""An automatic set is one in this many of a node's CPUs."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The sets, and what they were resolved from."""

    roles: Roles
    emulator_on: Mapping[int | None, CpuSet]
    """Each node's slice of an automatic emulator set; empty for a literal one."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Slices:
    """What one node gives to each role."""

    housekeeping: CpuSet = CpuSet()
    emulator: CpuSet = CpuSet()
    vcpu: CpuSet = CpuSet()
    note: str = ""


def resolve(
    allocatable: AllocatableCpus,
    request: Request,
    *,
    isolating: bool = False,
    placement: Roles | None = None,
    joined: Roles | None = None,
) -> Resolved:
    """The sets of a request on a host; those that are ``standing`` stay, less what cannot be handed out now. Of
    ``joined``, another strategy's of the same plan, only the vCPUs' set is not taken over.

    With ``isolating`` the vCPU set is every CPU that is or is to be isolated, else every CPU that threads may float
    over and that the two other sets leave; in any case it lies in Nova's cpu_shared_set, which automatic other sets
    avoid as long as they can. Raises Invalid, naming the field and the CPUs, where a literal set has CPUs that may not
    be handed out, or both literal sets share some; NovaConflict where Nova owns some; NoFit where no CPU is left for
    vCPUs.
    """
    if joined is not None:
        return _joined(allocatable, request, joined, isolating=isolating)
    if placement is not None and (kept := _kept(allocatable, request, placement, isolating=isolating)):
        return kept
    literal = {name: _literal(allocatable, name, getattr(request, name)) for name in ("housekeeping", "emulator")}
    if both := literal["housekeeping"] & literal["emulator"]:
        raise Invalid("emulator", request.emulator, f"CPUs outside housekeeping; {both} in both", cpus=str(both))
    free = allocatable.shared - literal["housekeeping"] - literal["emulator"]
    slices = {
        node: _slice(allocatable, node, free & cpus, request, isolating=isolating)
        for node, cpus in allocatable.nodes.items()
    }
    vcpu = union(part.vcpu for part in slices.values())
    roles = Roles(
        housekeeping=literal["housekeeping"] or union(part.housekeeping for part in slices.values()),
        emulator=literal["emulator"] or union(part.emulator for part in slices.values()),
        vcpu=allocatable.nova.for_vcpus(vcpu) | allocatable.exclusive
        if isolating
        else allocatable.nova.for_vcpus(vcpu),
        notes=tuple(part.note for part in slices.values() if part.note),
    )
    sets = {"housekeeping": roles.housekeeping, "emulators": roles.emulator, "vCPUs": roles.vcpu}
    if missing := [name for name, cpus in sets.items() if not cpus]:
        raise NoFit(asked=1, free=0, why=_shortage(allocatable, roles, missing))
    emulator_on = {} if literal["emulator"] else {node: part.emulator for node, part in slices.items() if part.emulator}
    return Resolved(roles, emulator_on, _doubts(allocatable, roles, literal))


def _kept(allocatable: AllocatableCpus, request: Request, placement: Roles, *, isolating: bool) -> Resolved | None:
    """The standing sets as they can be had now; None where nothing is left of one of them."""
    allowed, floor = allocatable.shared, allocatable.nova.for_vcpus(allocatable.shared)
    now = Roles(
        housekeeping=placement.housekeeping & allowed,
        emulator=placement.emulator & allowed,
        vcpu=placement.vcpu & (floor | allocatable.exclusive if isolating else floor),
        notes=placement.notes,
    )
    if not (now.housekeeping and now.emulator and now.vcpu):
        return None
    lacking = placement.cpus - now.cpus - allocatable.exclusive
    warnings = (f"CPUs {lacking} of the standing placement cannot be used now",) if lacking else ()
    return Resolved(now, _by_node(allocatable, request, now.emulator), warnings)


def _joined(allocatable: AllocatableCpus, request: Request, joined: Roles, *, isolating: bool) -> Resolved:
    """Another strategy's sets, with a set of vCPUs of this one's own. Raises NoFit where that is empty."""
    floor = allocatable.nova.for_vcpus(allocatable.shared) - joined.housekeeping - joined.emulator
    vcpu = allocatable.exclusive if isolating else floor
    if not vcpu:
        kind = "isolated CPU is there" if isolating else "CPU to float over is left beside the host's own strategy"
        raise NoFit(asked=1, free=0, why=f"no {kind}")
    roles = Roles(joined.housekeeping, joined.emulator, vcpu, joined.notes)
    return Resolved(roles, _by_node(allocatable, request, joined.emulator), ())


def _by_node(allocatable: AllocatableCpus, request: Request, emulator: CpuSet) -> dict[int | None, CpuSet]:
    slices = {node: emulator & cpus for node, cpus in allocatable.nodes.items() if emulator & cpus}
    return slices if request.emulator == AUTO else {}


def housekeeping(allocatable: AllocatableCpus, request: Request) -> CpuSet:
    """The housekeeping set alone: literal, or one slice of each node. Raises Invalid for a list that does not parse."""
    if request.housekeeping != AUTO:
        return CpuSet.parse(request.housekeeping, "housekeeping")
    free = for_housekeeping(allocatable, request)
    return union(
        _slice(allocatable, node, free & cpus, request).housekeeping for node, cpus in allocatable.nodes.items()
    )


def for_housekeeping(allocatable: AllocatableCpus, request: Request) -> CpuSet:
    """What an automatic housekeeping set is taken from: lowest CPUs first. Raises Invalid like ``housekeeping``."""
    if request.emulator == AUTO:
        return allocatable.shared
    return allocatable.shared - CpuSet.parse(request.emulator, "emulator")


def _literal(allocatable: AllocatableCpus, field: str, value: str) -> CpuSet:
    if value == AUTO:
        return CpuSet()
    cpus = CpuSet.parse(value, field)
    if wrong := allocatable.objections(cpus):
        hint = "; name a process among those to move to free its CPUs" if any("claimed" in one for one in wrong) else ""
        refused = cpus - allocatable.shared
        raise Invalid(field, value, f"CPUs that may be handed out; {'; '.join(wrong)}{hint}", cpus=str(refused))
    for owner, theirs in allocatable.nova.owners_of(cpus):
        raise NovaConflict(f"{field} {value}", owner, theirs)
    return cpus


def _slice(
    allocatable: AllocatableCpus, node: int | None, free: CpuSet, request: Request, *, isolating: bool = False
) -> _Slices:
    """What a node gives of its free CPUs; roles merge where it is too small to leave a CPU for vCPUs."""
    floor = allocatable.nova.for_vcpus(free)
    cores = allocatable.cores_within(free - floor) + allocatable.cores_within(floor)
    autos = (request.housekeeping == AUTO, request.emulator == AUTO)
    if not cores or not any(autos):
        return _Slices(vcpu=free)
    size = len(allocatable.nodes[node]) // _PART
    if len(cores) == 1:
        return _one_core(free, floor, node, autos, isolating=isolating)
    housekeeping = _take(cores[:-1], size) if autos[0] else CpuSet()
    rest = [core for core in cores if not core <= housekeeping]
    if not autos[1]:
        return _Slices(housekeeping=housekeeping, vcpu=union(rest))
    if isolating:
        return _beside_isolated(
            housekeeping, rest, node, size, has_isolated=bool(allocatable.exclusive & allocatable.nodes[node])
        )
    emulator = _take(rest, size)
    both = emulator & floor
    if union(rest) - emulator or not both:
        return _Slices(housekeeping, emulator, union(rest) - emulator)
    return _Slices(housekeeping, emulator, both, f"{_name(node)}is small: emulator threads share {both} with vCPUs")


def _beside_isolated(
    housekeeping: CpuSet, rest: list[CpuSet], node: int | None, size: int, *, has_isolated: bool
) -> _Slices:
    """The slices where vCPUs get isolated CPUs: no emulator thread may run there, so it joins housekeeping instead.

    ``room``: the node has isolated CPUs already, so that of the others none has to be left over.
    """
    if has_isolated:
        emulator = _take(rest, size)
    elif len(rest) > 1 or not housekeeping:
        emulator = _take(rest[:-1] or rest, size)
    else:
        note = f"{_name(node)}is small: emulator threads share {housekeeping} with housekeeping"
        return _Slices(housekeeping, housekeeping, union(rest), note)
    return _Slices(housekeeping, emulator, union(rest) - emulator)


def _one_core(free: CpuSet, floor: CpuSet, node: int | None, autos: tuple[bool, bool], *, isolating: bool) -> _Slices:
    housekeeping, emulator = (free if auto else CpuSet() for auto in autos)
    vcpu = CpuSet() if isolating else floor
    sharing = [
        name for name, cpus in (("housekeeping", housekeeping), ("emulators", emulator), ("vCPUs", vcpu)) if cpus
    ]
    note = f"{_name(node)}has one free core: {', '.join(sharing)} share {free}" if len(sharing) > 1 else ""
    return _Slices(housekeeping, emulator, vcpu, note)


def _take(cores: list[CpuSet], size: int) -> CpuSet:
    """The first cores that make up ``size`` CPUs at most, but at least one core."""
    taken = cores[0]
    for core in cores[1:]:
        if len(taken) + len(core) > size:
            break
        taken |= core
    return taken


def _name(node: int | None) -> str:
    return "the host " if node is None else f"node {node} "


def _shortage(allocatable: AllocatableCpus, roles: Roles, missing: list[str]) -> str:
    parts = (
        ("housekeeping", roles.housekeeping),
        ("emulator", roles.emulator),
        ("isolated", allocatable.isolated),
        ("dedicated by Nova", allocatable.dedicated),
        ("outside Nova's cpu_shared_set", allocatable.online - allocatable.nova.for_vcpus(allocatable.online)),
        *((f"claimed by {restriction.owner}", restriction.cpus) for restriction in allocatable.restrictions),
    )
    taken = ", ".join(f"{what} {cpus}" for what, cpus in parts if cpus)
    online = allocatable.online
    return f"no CPU is left for {', '.join(missing)} of the {len(online)} online ({online}): {taken}"


def _doubts(allocatable: AllocatableCpus, roles: Roles, literal: Mapping[str, CpuSet]) -> tuple[str, ...]:
    """What is odd about literal sets: cores split between roles, sockets straddled."""
    sets = {"housekeeping": roles.housekeeping, "emulator": roles.emulator, "vCPUs": roles.vcpu}
    found = []
    for name, cpus in literal.items():
        siblings = union(allocatable.cores[cpu] for cpu in cpus) - cpus
        for other, theirs in sets.items():
            if shared := siblings & theirs:
                found.append(f"{name} {cpus} splits cores: {shared} of {other} are hardware threads of the same cores")
        sockets = sorted({allocatable.sockets[cpu] for cpu in cpus if cpu in allocatable.sockets})
        if len(sockets) > 1:
            found.append(f"{name} {cpus} straddles sockets {', '.join(map(str, sockets))}")
    return tuple(found)
