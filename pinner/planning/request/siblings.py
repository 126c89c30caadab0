"""The sibling threads of cores that vCPUs may use (``smt``, as Nova's hw:cpu_thread_policy)."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.plan.request import Smt
from pinner.planning.request.context import Context


def cores_for_vcpus(context: Context, pool: CpuSet) -> list[CpuSet]:
    """Their CPUs in the pool."""
    cores = context.allocatable.cores_within(pool)
    match context.request.smt:
        case "isolate":
            # A slower core has no second thread that could stay idle.
            fast = context.snapshot.topology.core_classes[0]
            return [core for core in cores if core == context.allocatable.cores[core.lowest] and core <= fast]
        case "require":
            return [core for core in cores if len(core) > 1]
        case "prefer":
            return cores


def usable(context: Context, pool: CpuSet) -> CpuSet:
    """The CPUs over which a guest without bounds floats there."""
    if context.request.smt == "prefer":
        return pool
    return _of(cores_for_vcpus(context, pool), context.request.smt)


def kept(context: Context, pool: CpuSet) -> Context:
    """Binds floating guests to these threads of the pool: with ``isolate`` to one of each core."""
    if context.request.smt == "prefer":
        return context
    cores = cores_for_vcpus(context, pool)

    def own(guest: Guest) -> CpuSet:
        groups = context.groups(guest)
        return union(_of(map(group.within, cores), context.request.smt) for group in groups)

    return replace(context, cores={**context.cores, **{guest.uuid: own(guest) for guest in context.guests}})


def _of(cores: Iterable[CpuSet], smt: Smt) -> CpuSet:
    return CpuSet.of(core.lowest for core in cores if core) if smt == "isolate" else union(cores)


WORDS: dict[Smt, str] = {"isolate": "one CPU of each core", "require": "CPUs of whole cores"}
"""What a guest floats over that is bound to such threads."""


def warnings(context: Context, pool: CpuSet) -> Iterator[str]:
    if context.request.smt == "isolate" and (idle := len(pool) - len(usable(context, pool))):
        yield f"smt isolate: {idle} of the {len(pool)} CPUs for vCPUs stay idle, so that each vCPU may have a core"
