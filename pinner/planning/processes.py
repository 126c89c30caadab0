"""Which processes of the host move, which stay, and which CPUs those that stay claim."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from pinner.model.cpuset import CpuSet
from pinner.model.errors import NotFound
from pinner.model.plan import LeftOut, Target
from pinner.model.process import Hold, Process, Thread
from pinner.model.request import AUTO, Request
from pinner.model.snapshot import Snapshot
from pinner.planning.exemptions import asked_for, exempt_guest, exempt_process, own_cpus
from pinner.planning.partitions import partitioned
from pinner.planning.roles import for_housekeeping, housekeeping
from pinner.planning.supply import Claim, Supply


@dataclass(frozen=True, slots=True)
class Moving:
    """A process to be moved: its target, those of its threads that go, and why."""

    target: Target
    threads: tuple[Thread, ...]
    reason: str


def supply_of(snapshot: Snapshot, request: Request, standing: CpuSet = CpuSet()) -> Supply:
    """The host's CPUs less what processes claim that were not asked for. Of CPUs that are in use already (``standing``)
    no process can claim one: every taskset would shuffle the guests.

    A mask that is just what housekeeping would be without it was given by hand to clear the vCPUs' CPUs (for instance
    with the commands of ``shell``): it is no claim. Its lowest CPU is then the lowest that is free without it, and
    nobody else claims any of it.
    """
    claims = (Claim(claim.cpus - standing, claim.owner) for claim in _claims(snapshot, request))
    kept = (*(claim for claim in claims if claim.cpus), *_guests_claims(snapshot, request))
    supply = Supply.of(snapshot, kept, partitioned(snapshot, request))
    # Nova's cpu_shared_set comes last for housekeeping, wherever it lies.
    given = bool(snapshot.shared)
    lowest = min(for_housekeeping(supply, request), default=None)
    for claim in sorted(supply.claims, key=lambda claim: min(claim.cpus)):
        if request.housekeeping == AUTO and lowest is not None and min(claim.cpus) > lowest and not given:
            break
        trial = supply.without(claim.cpus)
        if not trial.claimed & claim.cpus and housekeeping(trial, request) == claim.cpus:
            return trial
    return supply


def moving(snapshot: Snapshot, request: Request, residents: Container[tuple[int, int]] = ()) -> Iterator[Moving]:
    """The processes to move: busy ones, those asked for, and ``residents`` (pid and start time)."""
    for process in snapshot.processes:
        asked, busy = _asked(process, request), process.load > request.busy_threshold
        stays = not (asked or busy or (process.pid, process.started) in residents)
        if stays or exempt_process(process, request):
            continue
        threads = tuple(thread for thread in process.threads if _hold(process, thread) in _movable(asked))
        if threads:
            reason = "was busy when it was placed: off the guests' CPUs"
            if asked:
                reason = "asked for by name"
            elif busy:
                load = f"{process.load:.1f} % of one CPU, above {request.busy_threshold:g} %"
                reason = f"busy, {load}: off the guests' CPUs"
            yield Moving(process_target(process), threads, reason)


def require_asked(snapshot: Snapshot, request: Request) -> None:
    """Raises NotFound for a name or pid that is asked for and not there."""
    names = {process.name for process in snapshot.processes} | {str(process.pid) for process in snapshot.processes}
    for name in request.processes:
        if name not in names:
            raise NotFound("process", name)


def staying(snapshot: Snapshot, request: Request) -> Iterator[LeftOut]:
    """What is busy or was asked for, and is left where it is; a guest's own processes are not worth a line."""
    per_cpu = []
    for process in snapshot.processes:
        asked = _asked(process, request)
        if not (asked or process.load > request.busy_threshold):
            continue
        if process.hold == "per-cpu" and not asked:
            per_cpu.append(process)
        elif exempt_process(process, request):
            yield LeftOut(str(process_target(process)), f"{process.load:.1f} % of one CPU; it is exempt")
        elif process.hold == "guest":
            if asked:
                yield LeftOut(str(process_target(process)), "it belongs to a guest and is placed with it")
        else:
            yield from _held_threads(process, asked=asked)
    if per_cpu:
        busiest = max(per_cpu, key=lambda process: process.load)
        total = sum(process.load for process in per_cpu)
        why = f"each belongs to its CPU; together {total:.1f} % of one CPU, most of it {busiest.name}"
        yield LeftOut(f"{len(per_cpu)} busy per-CPU kernel threads", why)


def process_target(process: Process) -> Target:
    """The process by pid and start time."""
    return Target("process", str(process.pid), process.started, process.name)


def thread_label(target: Target, tid: int | str) -> str:
    """What the plan calls threads of a process that stay while the process's others move."""
    return f"{target} thread {tid}"


def _held_threads(process: Process, *, asked: bool) -> Iterator[LeftOut]:
    target = process_target(process)
    held: dict[tuple[Hold, CpuSet], list[Thread]] = {}
    for thread in process.threads:
        hold = _hold(process, thread)
        if hold not in _movable(asked):
            held.setdefault((hold, thread.affinity), []).append(thread)
    for (hold, mask), threads in held.items():
        load = sum(thread.load for thread in threads)
        why = {
            "per-cpu": f"a kernel thread that belongs to CPU {mask}",
            "pinner": "pinner itself",
            "narrowed": f"somebody gave it CPUs {mask} on purpose; name it among those to move to have it moved",
            "guest": "it belongs to a guest and is placed with it",
        }[hold]
        if hold == "pinner" or len(threads) == len(process.threads):
            name = str(target)
        else:
            name = thread_label(target, ", ".join(str(thread.tid) for thread in threads))
        yield LeftOut(name, f"{load:.1f} % of one CPU; {why}")


def _claims(snapshot: Snapshot, request: Request) -> Iterable[Claim]:
    """One claim a mask, in the name of the first process that has it."""
    owners: dict[CpuSet, list[str]] = {}
    for process in snapshot.processes:
        if _asked(process, request):
            continue
        masks = {thread.affinity for thread in process.threads if _hold(process, thread) == "narrowed"}
        for mask in masks:
            owners.setdefault(mask, []).append(str(process_target(process)))
    for mask, names in owners.items():
        if mask:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield Claim(mask, names[0] + more)


def disputes(snapshot: Snapshot, request: Request, standing: CpuSet) -> Iterator[Claim]:
    """What processes would claim of CPUs that are in use already."""
    return (Claim(both, claim.owner) for claim in _claims(snapshot, request) if (both := claim.cpus & standing))


def _guests_claims(snapshot: Snapshot, request: Request) -> Iterator[Claim]:
    for guest in snapshot.guests:
        if exempt_guest(guest, request) and (cpus := own_cpus(guest)):
            yield Claim(cpus, f"guest {guest.name}, which is exempt")


def _asked(process: Process, request: Request) -> bool:
    return asked_for(process, request) and not exempt_process(process, request)


def _hold(process: Process, thread: Thread) -> Hold:
    return process.hold or thread.hold


def _movable(asked: bool) -> tuple[Hold, ...]:
    return ("", "narrowed") if asked else ("",)
