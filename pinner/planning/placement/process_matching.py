"""Recognising in a snapshot what stands, after restarts too."""

from dataclasses import replace

from pinner.model.change import Target
from pinner.model.placement import PlacedTarget, Placement
from pinner.model.process import Process, Thread
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.exclusions import asked_for

Key = tuple[str, str, int | None]
Identity = tuple[str, str, str]


def without_own_masks(snapshot: Snapshot, placement: Placement) -> Snapshot:
    """The snapshot in which no thread that was placed counts as narrowed by its owner: somebody moved it since."""
    placements = {key(placed.target): frozenset(placed.threads) for placed in placement.placed}

    def ours(process: Process, thread: Thread) -> bool:
        known = placements.get(instance(process))
        return known is not None and (thread.started > placement.since or thread.key in known)

    def without_own(process: Process) -> Process:
        if instance(process) not in placements:
            return process
        threads = (
            replace(thread, immovable_reason="")
            if thread.immovable_reason == "restricted" and ours(process, thread)
            else thread
            for thread in process.threads
        )
        return replace(process, threads=tuple(threads))

    return replace(snapshot, processes=tuple(map(without_own, snapshot.processes)))


def managed_processes(snapshot: Snapshot, placement: Placement) -> frozenset[tuple[int, int]]:
    """The processes, by pid and start time, that belong to housekeeping without being measured anew: those that were
    placed, and those of their unit and name that began since."""
    placed = [each for each in placement.placed if each.target.kind == "process"]
    instances = {key(each.target) for each in placed}
    living = {instance(process) for process in snapshot.processes}
    known = {identity_of(each) for each in placed}
    lost = known - {identity_of(each) for each in placed if key(each.target) in living}
    return frozenset(
        (process.pid, process.started)
        for process in snapshot.processes
        if instance(process) in instances
        or identity(process) in lost
        or (identity(process) in known and process.started > placement.since)
    )


def pruned(snapshot: Snapshot, request: Request, placement: Placement | None) -> Snapshot:
    """The snapshot without processes that no plan of this request looks at: small enough to be kept for every plan that
    a policy makes. The youngest process stays, for it dates the snapshot."""
    managed = managed_processes(snapshot, placement) if placement else frozenset()
    youngest = max(snapshot.processes, key=lambda process: process.started, default=None)

    def matters(process: Process) -> bool:
        return (
            process is youngest
            or process.load > request.busy_threshold
            or (process.pid, process.started) in managed
            or asked_for(process, request)
            or any(thread.immovable_reason == "restricted" for thread in process.threads)
        )

    return replace(snapshot, processes=tuple(filter(matters, snapshot.processes)))


def watched(placement: Placement) -> tuple[str, ...]:
    """The names of the processes whose restart matters."""
    return tuple(sorted({each.target.name for each in placement.placed if each.target.kind == "process"}))


def key(target: Target) -> Key:
    """What names a target: a process may change its name, and a guest too."""
    return target.kind, target.owner, target.part


def instance(process: Process) -> Key:
    """The key of the process's target."""
    return "process", str(process.pid), process.started


def identity(process: Process) -> Identity:
    """By what a process is known after a restart: its service and name, else its name and command line."""
    if process.unit.endswith(".service"):
        return process.unit, process.name, ""
    return "", process.name, process.command


def identity_of(placed: PlacedTarget) -> Identity:
    """By what a placed process is known after a restart."""
    return placed.unit, placed.target.name, placed.command


def with_loads(snapshot: Snapshot, measured: Snapshot) -> Snapshot:
    """The snapshot with the loads of a measured one from just before; who began since has none."""
    loads = {(process.pid, process.started): process for process in measured.processes}

    def load(process: Process) -> Process:
        before = loads.get((process.pid, process.started))
        if before is None or not before.load:
            return process
        threads = {thread.key: thread.load for thread in before.threads}
        return replace(
            process,
            load=before.load,
            threads=tuple(replace(thread, load=threads.get(thread.key, 0.0)) for thread in process.threads),
        )

    return replace(snapshot, sample_seconds=measured.sample_seconds, processes=tuple(map(load, snapshot.processes)))
