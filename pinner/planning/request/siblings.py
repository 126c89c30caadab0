"""The sibling threads of cores that vCPUs may use (``smt``, as Nova's hw:cpu_thread_policy)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.plan.plan import LeftOut
from pinner.model.plan.request import Smt
from pinner.planning.request.context import Context


def cores_for_vcpus(context: Context, pool: CpuSet) -> list[CpuSet]:
    """Their CPUs in the pool."""
    cores = context.allocatable.cores_within(pool)
    match context.request.smt:
        case "isolate":
            return [core for core in cores if core == context.allocatable.cores[core.lowest]]
        case "require":
            return [core for core in cores if len(core) > 1]
        case "prefer":
            return cores


def cores_for_pins(context: Context, pool: CpuSet) -> list[CpuSet]:
    """For vCPUs with a CPU each: beside cores of several threads, slower ones have none that could stay idle."""
    cores, topology = cores_for_vcpus(context, pool), context.snapshot.topology
    if context.request.smt != "isolate" or topology.core_count == len(topology.online):
        return cores
    return [core for core in cores if core <= topology.core_classes[0]]


def usable(context: Context, pool: CpuSet) -> CpuSet:
    """The CPUs over which a guest without bounds floats there."""
    if context.request.smt == "prefer":
        return pool
    return _of(cores_for_vcpus(context, pool), context.request.smt)


def kept(context: Context, pool: CpuSet) -> tuple[Context, tuple[LeftOut, ...]]:
    """Binds floating guests to these threads of the pool, with ``isolate`` to one of each core, and leaves out guests
    with more vCPUs than that."""
    smt = context.request.smt
    if smt == "prefer":
        return context, ()
    cores, own, left_out = cores_for_vcpus(context, pool), dict[str, CpuSet](), list[LeftOut]()
    for guest in context.guests:
        parts = [(group, _of(map(group.within, cores), smt)) for group in context.groups(guest)]
        few = ((group, cpus) for group, cpus in parts if len(cpus) < len(group.vcpus))
        if lacking := next(few, None):
            group, cpus = lacking
            why = f"smt {smt} leaves {len(cpus)} of CPUs {group.within(pool)} for {len(group.vcpus)} vCPUs"
            left_out.append(LeftOut(guest.target, f"{group.why}; {why}" if group.why else why))
        else:
            own[guest.uuid] = union(cpus for _, cpus in parts)
    guests = tuple(guest for guest in context.guests if guest.uuid in own)
    return replace(context, guests=guests, cores={**context.cores, **own}), tuple(left_out)


def _of(cores: Iterable[CpuSet], smt: Smt) -> CpuSet:
    return CpuSet.of(core.lowest for core in cores if core) if smt == "isolate" else union(cores)


WORDS: dict[Smt, str] = {"isolate": "one CPU of each core", "require": "CPUs of whole cores"}
"""What a guest floats over that is bound to such threads."""


def warnings(context: Context, pool: CpuSet) -> Iterator[str]:
    if context.request.smt == "isolate" and (idle := len(pool) - len(usable(context, pool))):
        yield f"smt isolate: {idle} of the {len(pool)} CPUs for vCPUs stay idle, so that each vCPU may have a core"
