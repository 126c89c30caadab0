"""The three CPU sets of a plan - housekeeping, emulator, vCPU - resolved from a request and a host."""

from collections.abc import Mapping
from dataclasses import dataclass

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.plan import Roles
from pinner.model.request import AUTO, Request
from pinner.planning.allocatable_cpus import AllocatableCpus

_PART = 8
"""An automatic set has one in this many of a node's CPUs."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The sets, and the emulator set by node."""

    roles: Roles
    emulator_on: Mapping[int | None, CpuSet]
    """Each node's part of an automatic emulator set; empty for a literal set."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Slices:
    """The CPUs of one node for each role."""

    housekeeping: CpuSet = CpuSet()
    emulator: CpuSet = CpuSet()
    vcpu: CpuSet = CpuSet()
    note: str = ""


def resolve(
    allocatable: AllocatableCpus,
    request: Request,
    *,
    isolating: bool = False,
    recorded: Roles | None = None,
    joined: Roles | None = None,
) -> Resolved:
    """The sets of a request on a host.

    - ``recorded`` sets stay, less the CPUs that pinner may not allocate now.
    - ``joined`` are the sets of another strategy of the same plan; its housekeeping and emulator sets are used here.
    - With ``isolating`` the vCPU set is every CPU that is isolated or is to be. Otherwise it is every CPU that threads
      may float over and that the two other sets leave.
    - The vCPU set lies in Nova's cpu_shared_set; automatic other sets avoid that set as long as they can.

    Raises Invalid, with the field and the CPUs, where a literal set has CPUs that pinner may not allocate, or both
    literal sets share some; NovaConflict where Nova owns some; NoFit where no CPU is left for vCPUs.
    """
    if joined is not None:
        return _joined(allocatable, request, joined, isolating=isolating)
    if recorded is not None and (now := _recorded(allocatable, request, recorded, isolating=isolating)):
        return now
    return _new(allocatable, request, isolating=isolating)


def _new(allocatable: AllocatableCpus, request: Request, *, isolating: bool) -> Resolved:
    """The sets of a request without regard to recorded ones. Raises like ``resolve``."""
    literal = {name: _literal(allocatable, name, getattr(request, name)) for name in ("housekeeping", "emulator")}
    if both := literal["housekeeping"] & literal["emulator"]:
        raise Invalid(
            "emulator", request.emulator, f"CPUs outside housekeeping; CPUs {both} are in both sets", cpus=str(both)
        )
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
    return Resolved(roles, emulator_on, _literal_warnings(allocatable, roles, literal))


def _recorded(allocatable: AllocatableCpus, request: Request, recorded: Roles, *, isolating: bool) -> Resolved | None:
    """The recorded sets, less the CPUs that pinner may not allocate now; None where one of them would be empty."""
    allowed, floor = allocatable.shared, allocatable.nova.for_vcpus(allocatable.shared)
    now = Roles(
        housekeeping=recorded.housekeeping & allowed,
        emulator=recorded.emulator & allowed,
        vcpu=recorded.vcpu & (floor | allocatable.exclusive if isolating else floor),
        notes=recorded.notes,
    )
    if not (now.housekeeping and now.emulator and now.vcpu):
        return None
    lacking = recorded.cpus - now.cpus - allocatable.exclusive
    warnings = (f"CPUs {lacking} of the recorded placement are not allocatable now",) if lacking else ()
    return Resolved(now, _by_node(allocatable, request, now.emulator), warnings)


def _joined(allocatable: AllocatableCpus, request: Request, joined: Roles, *, isolating: bool) -> Resolved:
    """Another strategy's housekeeping and emulator sets, and a vCPU set beside them. Raises NoFit for an empty one."""
    floor = allocatable.nova.for_vcpus(allocatable.shared) - joined.housekeeping - joined.emulator
    vcpu = allocatable.exclusive if isolating else floor
    if not vcpu:
        why = "no isolated CPU is free" if isolating else "the host's strategy leaves no CPU for vCPUs that float"
        raise NoFit(asked=1, free=0, why=why)
    roles = Roles(joined.housekeeping, joined.emulator, vcpu, joined.notes)
    return Resolved(roles, _by_node(allocatable, request, joined.emulator), ())


def _by_node(allocatable: AllocatableCpus, request: Request, emulator: CpuSet) -> dict[int | None, CpuSet]:
    slices = {node: emulator & cpus for node, cpus in allocatable.nodes.items() if emulator & cpus}
    return slices if request.emulator == AUTO else {}


def housekeeping(allocatable: AllocatableCpus, request: Request) -> CpuSet:
    """The housekeeping set alone: literal, or a part of each node. Raises Invalid for a list that does not parse."""
    if request.housekeeping != AUTO:
        return CpuSet.parse(request.housekeeping, "housekeeping")
    free = for_housekeeping(allocatable, request)
    return union(
        _slice(allocatable, node, free & cpus, request).housekeeping for node, cpus in allocatable.nodes.items()
    )


def for_housekeeping(allocatable: AllocatableCpus, request: Request) -> CpuSet:
    """The CPUs for an automatic housekeeping set, the lowest first. Raises Invalid like ``housekeeping``."""
    if request.emulator == AUTO:
        return allocatable.shared
    return allocatable.shared - CpuSet.parse(request.emulator, "emulator")


def _literal(allocatable: AllocatableCpus, field: str, value: str) -> CpuSet:
    if value == AUTO:
        return CpuSet()
    cpus = CpuSet.parse(value, field)
    if wrong := allocatable.objections(cpus):
        restricted = bool(cpus & allocatable.restricted)
        hint = "; to free a process's CPUs, name it in processes (--process)" if restricted else ""
        refused = cpus - allocatable.shared
        raise Invalid(field, value, f"CPUs that pinner may allocate; {'; '.join(wrong)}{hint}", cpus=str(refused))
    for owner, owned in allocatable.nova.owners_of(cpus):
        raise NovaConflict(f"{field} {value}", owner, owned)
    return cpus


def _slice(
    allocatable: AllocatableCpus, node: int | None, free: CpuSet, request: Request, *, isolating: bool = False
) -> _Slices:
    """The parts of a node's free CPUs; roles share CPUs where the node is too small to leave one for vCPUs."""
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
    return _Slices(
        housekeeping, emulator, both, f"{_name(node)}is small: emulator threads share CPUs {both} with vCPUs"
    )


def _beside_isolated(
    housekeeping: CpuSet, rest: list[CpuSet], node: int | None, size: int, *, has_isolated: bool
) -> _Slices:
    """The parts of a node where vCPUs get isolated CPUs: emulator threads can share only housekeeping's CPUs.

    ``has_isolated``: the node has isolated CPUs already, so that housekeeping and emulators may use all the others.
    """
    if has_isolated:
        emulator = _take(rest, size)
    elif len(rest) > 1 or not housekeeping:
        emulator = _take(rest[:-1] or rest, size)
    else:
        note = f"{_name(node)}is small: emulator threads share CPUs {housekeeping} with housekeeping"
        return _Slices(housekeeping, housekeeping, union(rest), note)
    return _Slices(housekeeping, emulator, union(rest) - emulator)


def _one_core(free: CpuSet, floor: CpuSet, node: int | None, autos: tuple[bool, bool], *, isolating: bool) -> _Slices:
    housekeeping, emulator = (free if auto else CpuSet() for auto in autos)
    vcpu = CpuSet() if isolating else floor
    sharing = [
        name for name, cpus in (("housekeeping", housekeeping), ("emulators", emulator), ("vCPUs", vcpu)) if cpus
    ]
    note = f"{_name(node)}has one free core: {', '.join(sharing)} share CPUs {free}" if len(sharing) > 1 else ""
    return _Slices(housekeeping, emulator, vcpu, note)


def _take(cores: list[CpuSet], size: int) -> CpuSet:
    """The first cores that have ``size`` CPUs together at most, but at least one core."""
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
        *((f"restricted affinity of {each.owner}", each.cpus) for each in allocatable.restrictions),
    )
    used = ", ".join(f"{use} {cpus}" for use, cpus in parts if cpus)
    online = allocatable.online
    return (
        f"no CPU is left for {', '.join(missing)}: the {len(online)} online CPUs ({online}) are used as follows: {used}"
    )


def _literal_warnings(allocatable: AllocatableCpus, roles: Roles, literal: Mapping[str, CpuSet]) -> tuple[str, ...]:
    """Warnings about literal sets that split a core between roles, or span sockets."""
    sets = {"housekeeping": roles.housekeeping, "emulator": roles.emulator, "vCPUs": roles.vcpu}
    found = []
    for name, cpus in literal.items():
        siblings = union(allocatable.cores[cpu] for cpu in cpus) - cpus
        for other, others in sets.items():
            if split := siblings & others:
                found.append(
                    f"{name} {cpus} splits cores: CPUs {split} of {other} are hardware threads of the same cores"
                )
        sockets = sorted({allocatable.sockets[cpu] for cpu in cpus if cpu in allocatable.sockets})
        if len(sockets) > 1:
            found.append(f"{name} {cpus} spans sockets {', '.join(map(str, sockets))}")
    return tuple(found)
