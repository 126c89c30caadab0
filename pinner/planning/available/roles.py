"""A plan's three CPU sets: housekeeping, emulator, vCPU."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.plan.plan import Roles
from pinner.model.plan.request import AUTO, SETS, Request
from pinner.planning.available import slices
from pinner.planning.available.allocatable_cpus import PINNED, AllocatableCpus
from pinner.planning.available.slices import sized


@dataclass(frozen=True, slots=True)
class Resolved:
    roles: Roles
    emulator_on: Mapping[int | None, CpuSet]
    """Node to its part of an automatic emulator set; else empty."""
    warnings: tuple[str, ...]


def resolve(
    allocatable: AllocatableCpus,
    request: Request,
    *,
    isolating: bool = False,
    apart: bool = False,
    recorded: Roles | None = None,
    joined: Roles | None = None,
    anew: bool = False,
) -> Resolved:
    """Unless ``anew``, ``recorded`` sets stay, less the CPUs that pinner may not allocate now, as long as each has one.
    ``joined`` are the host's sets, where another strategy places guests beside them. Automatic sets avoid Nova's
    cpu_shared_set as long as they can. ``isolating``: vCPUs also get isolated CPUs; ``apart``: no other role shares
    those of vCPUs, as where ``isolating``.

    Raises Invalid, with field and CPUs, where a literal set has CPUs that pinner may not allocate, or both share some;
    NovaConflict where Nova owns some; NoFit where no CPU is left for vCPUs.
    """
    if joined is not None:
        return _joined(allocatable, request, joined, isolating=isolating)
    if recorded is None:
        return _new(allocatable, request, isolating=isolating, apart=apart)
    resolved = None if anew else _recorded(allocatable, request, recorded, isolating=isolating)
    resolved = resolved or _new(allocatable, request, isolating=isolating, apart=apart)
    return replace(resolved, warnings=(*_lost(allocatable, recorded.cpus - resolved.roles.cpus), *resolved.warnings))


def _new(allocatable: AllocatableCpus, request: Request, *, isolating: bool, apart: bool) -> Resolved:
    hosts = _hosts_slices(allocatable, request)
    request = replace(request, housekeeping=str(hosts)) if hosts else request
    literal = _literals(allocatable, request, isolating=isolating)
    free = allocatable.shared - literal["housekeeping"] - literal["emulator"]
    _require_room(allocatable, request, free)
    # Beside a literal set of vCPUs, the two others are divided as where each vCPU has a CPU to itself.
    apart = apart or isolating or bool(literal["vcpus"])
    nodes = {node: cpus - hosts for node, cpus in allocatable.nodes.items()}
    by_node = sized(replace(allocatable, nodes=nodes), request, free - literal["vcpus"], apart=apart)
    auto = slices.union_of(by_node)
    vcpu = literal["vcpus"] or allocatable.for_vcpus(auto.vcpu)
    roles = Roles(
        housekeeping=literal["housekeeping"] or auto.housekeeping,
        emulator=literal["emulator"] or auto.emulator,
        vcpu=vcpu | allocatable.unbalanced if isolating else vcpu,
        notes=tuple(part.note for part in by_node.values() if part.note),
    )
    sets = zip(slices.ROLES, (roles.housekeeping, roles.emulator, roles.vcpu), strict=True)
    if missing := [name for name, cpus in sets if not cpus]:
        raise NoFit(asked=1, free=0, why=_shortage(allocatable, roles, missing))
    emulator_on = (
        {} if literal["emulator"] else {node: part.emulator for node, part in by_node.items() if part.emulator}
    )
    return Resolved(roles, emulator_on, _literal_warnings(allocatable, roles, literal))


def _hosts_slices(allocatable: AllocatableCpus, request: Request) -> CpuSet:
    """They are the housekeeping set where they leave half of the free CPUs to guests, or where live partitions can have
    none of theirs. Else an automatic set is inside, and so are those of other sizes."""
    if request.housekeeping != AUTO or not allocatable.slices:
        return CpuSet()
    free = for_housekeeping(allocatable, request)
    hosts, live = allocatable.for_host(free), request.isolation == "live" and allocatable.isolating
    fits = slices.MOST * len(hosts) <= len(free) and allocatable.steps is None
    cores = (allocatable.count_cores(hosts & cpus) for cpus in allocatable.nodes.values() if hosts & cpus)
    is_enough = hosts <= allocatable.slices and min(cores, default=0) >= allocatable.minimum_cores
    return hosts if (fits or live) and is_enough else CpuSet()


def _recorded(allocatable: AllocatableCpus, request: Request, recorded: Roles, *, isolating: bool) -> Resolved | None:
    allowed, for_vcpus = allocatable.shared, allocatable.for_vcpus(allocatable.shared)
    now = Roles(
        housekeeping=recorded.housekeeping & allowed,
        emulator=recorded.emulator & allowed,
        vcpu=recorded.vcpu & (for_vcpus | allocatable.unbalanced if isolating else for_vcpus),
        notes=recorded.notes,
    )
    if not (now.housekeeping and now.emulator and now.vcpu):
        return None
    return Resolved(now, _by_node(allocatable, request, now.emulator), ())


def _lost(allocatable: AllocatableCpus, recorded: CpuSet) -> tuple[str, ...]:
    lost = recorded - allocatable.unbalanced
    why = "; ".join(allocatable.objections(lost))
    return (f"CPUs {lost} of the recorded placement are not allocatable now{why and f': {why}'}",) if lost else ()


def _joined(allocatable: AllocatableCpus, request: Request, joined: Roles, *, isolating: bool) -> Resolved:
    floating = allocatable.for_vcpus(allocatable.shared) - joined.housekeeping - joined.emulator
    vcpu = allocatable.unbalanced if isolating else floating & joined.vcpu or floating
    if not vcpu:
        why = "no isolated CPU is free" if isolating else "the host's strategy leaves no CPU for vCPUs that float"
        raise NoFit(asked=1, free=0, why=why)
    roles = Roles(joined.housekeeping, joined.emulator, vcpu, joined.notes)
    return Resolved(roles, _by_node(allocatable, request, joined.emulator), ())


def _by_node(allocatable: AllocatableCpus, request: Request, emulator: CpuSet) -> dict[int | None, CpuSet]:
    by_node = {node: emulator & cpus for node, cpus in allocatable.nodes.items() if emulator & cpus}
    return by_node if request.emulator == AUTO else {}


def housekeeping_sets(allocatable: AllocatableCpus, request: Request) -> tuple[CpuSet, ...]:
    """All that a plan can have. Raises Invalid for a list that does not parse."""
    if request.housekeeping != AUTO:
        return (CpuSet.parse(request.housekeeping, "housekeeping"),)
    free = for_housekeeping(allocatable, request)
    apart = allocatable.apart or request.vcpus != AUTO
    by_node = (
        slices.of_nodes(allocatable, request, free, steps, apart=apart)
        for steps in slices.every_size(request)
        if 0 not in steps
    )
    hosts = _hosts_slices(allocatable, request)
    first = (hosts,) if hosts else ()
    return tuple(dict.fromkeys((*first, *(slices.union_of(each).housekeeping for each in by_node))))


def is_housekeeping_set(allocatable: AllocatableCpus, request: Request, cpus: CpuSet) -> bool:
    if request.housekeeping == AUTO:
        free = for_housekeeping(allocatable, request)
        hosts = slices.for_housekeeping(allocatable, free, 1)
        # An automatic set has free CPUs of each of these nodes. Few masks are like that, and the sets are costly.
        if not cpus <= free or any(hosts & node and not cpus & node for node in allocatable.nodes.values()):
            return False
    return cpus in housekeeping_sets(allocatable, request)


def for_housekeeping(allocatable: AllocatableCpus, request: Request) -> CpuSet:
    others = ("emulator",) if allocatable.isolating else ("emulator", "vcpus")
    literal = {name: value for name in others if (value := getattr(request, name)) != AUTO}
    return allocatable.shared - union(CpuSet.parse(value, name) for name, value in literal.items())


def _literals(allocatable: AllocatableCpus, request: Request, *, isolating: bool) -> dict[str, CpuSet]:
    """Empty for an automatic set, and for vCPUs that get isolated CPUs. Raises Invalid, NovaConflict."""
    literal: dict[str, CpuSet] = {}
    for name in SETS:
        value = AUTO if isolating and name == "vcpus" else getattr(request, name)
        literal[name] = cpus = _literal(allocatable, name, value)
        for other, others in literal.items():
            if other != name and (both := cpus & others):
                raise Invalid(name, value, f"CPUs outside {other}; CPUs {both} are in both sets", cpus=str(both))
    if outside := literal["vcpus"] - allocatable.for_vcpus(literal["vcpus"]):
        expected = f"CPUs that Nova's cpu_shared_set and cgroups allow to vCPUs; they leave out {outside}"
        raise Invalid("vcpus", request.vcpus, expected, cpus=str(outside))
    return literal


def _literal(allocatable: AllocatableCpus, field: str, value: str) -> CpuSet:
    if value == AUTO:
        return CpuSet()
    cpus = CpuSet.parse(value, field)
    if wrong := allocatable.objections(cpus):
        restricted = any(each.cpus & cpus and not each.guest for each in allocatable.restrictions)
        hint = "; to free a process's CPUs, name it in processes (--process)" if restricted else ""
        refused = cpus - allocatable.shared
        raise Invalid(field, value, f"CPUs that pinner may allocate; {'; '.join(wrong)}{hint}", cpus=str(refused))
    for owner, owned in allocatable.nova.owners_of(cpus):
        raise NovaConflict(f"{field} {value}", owner, owned)
    for node, here in allocatable.nodes.items():
        if 0 < (count := allocatable.count_cores(cpus & here)) < allocatable.minimum_cores:
            expected = f"at least {allocatable.minimum_cores} cores of each node that it uses (minimum_cores)"
            raise Invalid(field, value, f"{expected}; it has {count} of {slices.name(node)}", cpus=str(cpus & here))
    return cpus


def _require_room(allocatable: AllocatableCpus, request: Request, free: CpuSet) -> None:
    least = allocatable.minimum_cores
    most = max((allocatable.count_cores(free & cpus) for cpus in allocatable.nodes.values()), default=0)
    if least > 1 and len(slices.ROLES) * least > most:
        field = "minimum_cores" if request.minimum_cores is not None else "[host] minimum_cores"
        possible = f"at most {max(most // len(slices.ROLES), 1)} on this host"
        raise Invalid(
            field, least, f"{possible}: {', '.join(slices.ROLES)} divide the {most} free cores of the largest node"
        )


def _shortage(allocatable: AllocatableCpus, roles: Roles, missing: list[str]) -> str:
    parts = (
        ("housekeeping", roles.housekeeping),
        ("emulator", roles.emulator),
        ("isolated", allocatable.isolated),
        ("dedicated by Nova", allocatable.dedicated),
        ("outside Nova's cpu_shared_set", allocatable.online - allocatable.nova.for_vcpus(allocatable.online)),
        *((f"outside {limit}", allocatable.online - limit.cpus) for limit in allocatable.limits),
        *((f"restricted affinity of {each.owner}", each.cpus) for each in allocatable.restrictions),
    )
    used = ", ".join(f"{use} {cpus}" for use, cpus in parts if cpus)
    online, pinned = allocatable.online, any(each.owner.endswith(PINNED) for each in allocatable.restrictions)
    cure = "; to free CPUs of guests, place them (--guest) or release their pins (--release-cpuset)" if pinned else ""
    return (
        f"no CPU is left for {', '.join(missing)}: the {len(online)} online CPUs ({online}) are used as follows: "
        f"{used}{cure}"
    )


def _literal_warnings(allocatable: AllocatableCpus, roles: Roles, literal: Mapping[str, CpuSet]) -> tuple[str, ...]:
    sets = {"housekeeping": roles.housekeeping, "emulator": roles.emulator, "vCPUs": roles.vcpu}
    warnings = []
    for name, cpus in literal.items():
        siblings = union(allocatable.cores[cpu] for cpu in cpus) - cpus
        for other, others in sets.items():
            if split := siblings & others:
                warnings.append(f"{name} {cpus} splits cores: CPUs {split} of {other} are siblings of its CPUs")
        sockets = sorted({allocatable.sockets[cpu] for cpu in cpus if cpu in allocatable.sockets})
        if len(sockets) > 1 and name != "vcpus":
            warnings.append(f"{name} {cpus} spans sockets {', '.join(map(str, sockets))}")
    return tuple(warnings)
