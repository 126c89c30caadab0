"""The processes of a host: which of them move, which stay, and to which CPUs owners have restricted some of them."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NotFound
from pinner.model.plan import LeftOut
from pinner.model.process import Immovable, Process, Thread
from pinner.model.request import AUTO, Request
from pinner.model.snapshot import Snapshot
from pinner.planning.allocatable_cpus import AllocatableCpus, RestrictedAffinity
from pinner.planning.exclusions import (
    asked_for,
    is_excluded_guest,
    is_excluded_process,
    is_left_to_operator,
    operators_cpus,
    own_cpus,
)
from pinner.planning.partitions import partitioned
from pinner.planning.roles import for_housekeeping, housekeeping


@dataclass(frozen=True, slots=True)
class Moving:
    """A process to move: its target, the threads that may move, and the reason."""

    target: Target
    threads: tuple[Thread, ...]
    reason: str


def allocatable_cpus(snapshot: Snapshot, request: Request, in_use: CpuSet = CpuSet()) -> AllocatableCpus:
    """The host's CPUs, less the CPUs of excluded guests and of guests that an operator pinned, and less the restricted
    affinities of processes that are not requested.

    The CPUs that a recorded placement has ``in_use`` stay allocatable: otherwise each use of taskset would move guests.

    A mask does not count as a restricted affinity if it equals the housekeeping set that a plan without that mask has:
    an administrator set it to clear the vCPUs' CPUs, for instance with a plan's shell commands. The lowest CPU of such
    a mask is the lowest free CPU without the mask, and no other restricted affinity has any of its CPUs.
    """
    restrictions = (
        RestrictedAffinity(restriction.cpus - in_use, restriction.owner)
        for restriction in _restrictions(snapshot, request)
    )
    of_processes = tuple(restriction for restriction in restrictions if restriction.cpus)
    of_guests = tuple(_guests_cpus(snapshot, request))
    allocatable = AllocatableCpus.of(snapshot, (*of_processes, *of_guests), partitioned(snapshot, request))
    # Housekeeping takes CPUs of Nova's cpu_shared_set last, so that with such a set the lowest CPU need not be first.
    any_order = bool(snapshot.shared)
    lowest = min(for_housekeeping(allocatable, request), default=None)
    # An administrator clears CPUs with the masks of processes; the CPUs of such a guest stay with that guest.
    guests_cpus = union(restriction.cpus for restriction in of_guests)
    for restriction in sorted(of_processes, key=lambda restriction: min(restriction.cpus)):
        if request.housekeeping == AUTO and lowest is not None and min(restriction.cpus) > lowest and not any_order:
            break
        trial = allocatable.without(restriction.cpus)
        if not (trial.restricted | guests_cpus) & restriction.cpus and housekeeping(trial, request) == restriction.cpus:
            return trial
    return allocatable


def moving(
    snapshot: Snapshot, request: Request, managed_processes: Container[tuple[int, int]] = ()
) -> Iterator[Moving]:
    """The processes to move: processes that the request names, and if it ``moves_processes``, busy processes and
    ``managed_processes`` (pid and start time)."""
    for process in snapshot.processes:
        asked, busy = _asked(process, request), process.load > request.busy_threshold
        placed = moves_processes(request) and (busy or (process.pid, process.started) in managed_processes)
        if not (asked or placed) or is_excluded_process(process, request):
            continue
        threads = tuple(thread for thread in process.threads if _immovable_reason(process, thread) in _movable(asked))
        if threads:
            reason = "was busy when pinner placed it: stays off the guests' CPUs"
            if asked:
                reason = "asked for by name"
            elif busy:
                load = f"{process.load:.1f} % of one CPU, above {request.busy_threshold:g} %"
                reason = f"busy, {load}: moves off the guests' CPUs"
            yield Moving(process_target(process), threads, reason)


def moves_processes(request: Request) -> bool:
    """Whether the plan moves processes that the request does not name: a request for some guests leaves the host's
    processes where they are, unless it asks for them."""
    return not request.guests or request.with_processes


def require_asked(snapshot: Snapshot, request: Request) -> None:
    """Raises NotFound if the host does not have a process with a name or pid of the request."""
    names = {process.name for process in snapshot.processes} | {str(process.pid) for process in snapshot.processes}
    for name in request.processes:
        if name not in names:
            raise NotFound("process", name)


def require_threshold(snapshot: Snapshot, request: Request) -> None:
    """Raises Invalid for a threshold above the load of a process that uses every CPU of the host."""
    cpus = len(snapshot.topology.cpus)
    if request.busy_threshold > 100 * cpus:
        expected = f"a number of per cent of one CPU from 0 to {100 * cpus}: the host has {cpus} CPUs"
        raise Invalid("busy_threshold", request.busy_threshold, expected)


def staying(snapshot: Snapshot, request: Request) -> Iterator[LeftOut]:
    """The busy or requested processes that pinner does not move. A guest's busy threads are not listed, nor the busy
    processes that a request for some guests does not ask for."""
    per_cpu = []
    for process in snapshot.processes:
        asked = _asked(process, request)
        if not (asked or (moves_processes(request) and process.load > request.busy_threshold)):
            continue
        if process.immovable_reason == "per-cpu" and not asked:
            per_cpu.append(process)
        elif is_excluded_process(process, request):
            yield LeftOut(
                process_target(process),
                f"{process.load:.1f} % of one CPU; the request excludes it (excluded_processes)",
            )
        elif process.immovable_reason == "guest":
            if asked:
                yield LeftOut(process_target(process), "it belongs to a guest and is placed with that guest")
        else:
            yield from _immovable_threads(process, asked=asked)
    if per_cpu:
        yield _busiest(per_cpu)


def process_target(process: Process) -> Target:
    """The process by pid and start time."""
    return Target("process", str(process.pid), process.started, process.name)


def _busiest(per_cpu: list[Process]) -> LeftOut:
    """One entry for all busy per-CPU kernel threads: a host can have hundreds, and none can be moved."""
    busiest = max(per_cpu, key=lambda process: process.load)
    why = f"{busiest.load:.1f} % of one CPU; a per-CPU kernel thread cannot leave its CPU"
    if len(per_cpu) > 1:
        total = sum(process.load for process in per_cpu)
        why += f"; it is the busiest of {len(per_cpu)} such threads, which together use {total:.1f} % of one CPU"
    return LeftOut(process_target(busiest), why)


def _immovable_threads(process: Process, *, asked: bool) -> Iterator[LeftOut]:
    target = process_target(process)
    staying_threads: dict[tuple[Immovable, CpuSet], list[Thread]] = {}
    for thread in process.threads:
        immovable_reason = _immovable_reason(process, thread)
        if immovable_reason not in _movable(asked):
            staying_threads.setdefault((immovable_reason, thread.affinity), []).append(thread)
    for (immovable_reason, mask), threads in staying_threads.items():
        load = sum(thread.load for thread in threads)
        why = {
            "per-cpu": f"a kernel thread that cannot leave CPU {mask}",
            "pinner": "pinner itself",
            "restricted": f"its owner restricted it to CPUs {mask}; to move it, name it in processes (--process)",
            "guest": "it belongs to a guest and is placed with that guest",
        }[immovable_reason]
        whole = immovable_reason == "pinner" or len(threads) == len(process.threads)
        tids = () if whole else tuple(thread.tid for thread in threads)
        yield LeftOut(target, f"{load:.1f} % of one CPU; {why}", tids)


def _restrictions(snapshot: Snapshot, request: Request) -> Iterable[RestrictedAffinity]:
    """One restricted affinity for each mask, in the name of the first process that has it."""
    owners: dict[CpuSet, list[str]] = {}
    for process in snapshot.processes:
        if process.immovable_reason not in ("", "restricted") or _asked(process, request):
            continue
        masks = {thread.affinity for thread in process.threads if _immovable_reason(process, thread) == "restricted"}
        for mask in masks:
            owners.setdefault(mask, []).append(str(process_target(process)))
    for mask, names in owners.items():
        if mask:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield RestrictedAffinity(mask, names[0] + more)


def restricted_since(snapshot: Snapshot, request: Request, in_use: CpuSet) -> Iterator[RestrictedAffinity]:
    """The restricted affinities of processes, as far as a recorded placement has their CPUs ``in_use``."""
    return (
        RestrictedAffinity(both, restriction.owner)
        for restriction in _restrictions(snapshot, request)
        if (both := restriction.cpus & in_use)
    )


def _guests_cpus(snapshot: Snapshot, request: Request) -> Iterator[RestrictedAffinity]:
    """The CPUs of one vCPU each of the guests that are excluded, or that an operator pinned."""
    for guest in snapshot.guests:
        if is_excluded_guest(guest, request) and (cpus := own_cpus(guest)):
            yield RestrictedAffinity(cpus, f"guest {guest.name}, which is excluded")
        elif is_left_to_operator(guest, request) and (cpus := operators_cpus(guest) & snapshot.topology.online):
            yield RestrictedAffinity(cpus, f"guest {guest.name}, which an operator pinned")


def _asked(process: Process, request: Request) -> bool:
    return asked_for(process, request) and not is_excluded_process(process, request)


def _immovable_reason(process: Process, thread: Thread) -> Immovable:
    return process.immovable_reason or thread.immovable_reason


def _movable(asked: bool) -> tuple[Immovable, ...]:
    return ("", "restricted") if asked else ("",)
