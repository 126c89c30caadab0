"""Finds the processes of a recorded placement in a snapshot, after restarts too."""

from dataclasses import replace
from typing import Any

from pinner.model.change import TargetKey
from pinner.model.kinds import KINDS
from pinner.model.machine.process import Process, Thread
from pinner.model.plan.plan import PlacedTarget, Placement
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available.exclusions import asked_for

Identity = tuple[str, str, str]


def without_own_masks(snapshot: Snapshot, placement: Placement) -> Snapshot:
    """Threads that pinner placed do not count as restricted by their owners."""
    placements = {
        placed.target.key: frozenset(placed.threads) for placed in placement.placed if placed.target.kind == "process"
    }

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
    """By pid and start time: the placed ones, and those of the same unit and name that started later. They stay at any
    load."""
    placed = [each for each in placement.placed if each.target.kind == "process"]
    instances = {each.target.key for each in placed}
    running = {instance(process) for process in snapshot.processes}
    known = {identity_of(each) for each in placed}
    restarted = known - {identity_of(each) for each in placed if each.target.key in running}
    return frozenset(
        (process.pid, process.started)
        for process in snapshot.processes
        if instance(process) in instances
        or identity(process) in restarted
        or (identity(process) in known and process.started > placement.since)
    )


def pruned(snapshot: Snapshot, request: Request, placement: Placement | None) -> Snapshot:
    """Without what does not affect the plan: small enough to store for every plan of a policy. The youngest process
    stays: its start time dates the snapshot."""
    managed = managed_processes(snapshot, placement) if placement else frozenset()
    youngest = max(snapshot.processes, key=lambda process: process.started, default=None)

    def affects_plan(process: Process) -> bool:
        return (
            process is youngest
            or process.load > request.busy_threshold
            or (process.pid, process.started) in managed
            or asked_for(process, request)
            or any(thread.immovable_reason == "restricted" for thread in process.threads)
        )

    settings = (kind for kind in KINDS.values() if kind.remedy and not request.asks_for(kind.remedy))
    unused: dict[str, Any] = {kind.module: None for kind in settings}
    return replace(snapshot, processes=tuple(filter(affects_plan, snapshot.processes)), **unused)


def watched(placement: Placement) -> tuple[str, ...]:
    return tuple(sorted({each.target.name for each in placement.placed if each.target.kind == "process"}))


def instance(process: Process) -> TargetKey:
    return TargetKey("process", str(process.pid), process.started)


def identity(process: Process) -> Identity:
    if process.unit.endswith(".service"):
        return process.unit, process.name, ""
    return "", process.name, process.command


def identity_of(placed: PlacedTarget) -> Identity:
    return placed.unit, placed.target.name, placed.command


def with_loads(snapshot: Snapshot, measured: Snapshot) -> Snapshot:
    """A process that started after ``measured`` has no load."""
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

    rates = {card.target.key: card.rate for card in measured.coalescing or ()}
    cards = snapshot.coalescing
    return replace(
        snapshot,
        sample_seconds=measured.sample_seconds,
        processes=tuple(map(load, snapshot.processes)),
        coalescing=cards and tuple(replace(card, rate=rates.get(card.target.key, 0.0)) for card in cards),
    )
