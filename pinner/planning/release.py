"""A plan that gives one guest back the CPUs that it had before pinner placed it: what is carried to another host with
it must not be a place of this one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pinner.model.change import Change, ThreadMask
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest import Guest
from pinner.model.plan import Basis, Plan, Roles, Wanted, plan_id
from pinner.model.process import Thread
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.context import guest_targets
from pinner.planning.placement.process_matching import Key, key
from pinner.planning.score import score


@dataclass(frozen=True, slots=True)
class _Past:
    """What was done to a guest: where each thread (by id and start time) was first, and where each target was put."""

    first: dict[tuple[int, int], CpuSet] = field(default_factory=dict)
    last: dict[Key, CpuSet] = field(default_factory=dict)


def release(
    snapshot: Snapshot, snapshot_id: str, guest: str, done: Iterable[Change], within: CpuSet, reason: str
) -> Plan:
    """The plan. ``done`` are the changes of the guest (by UUID) that stand, oldest first; ``within`` are the CPUs that
    its destination has, where they are known (else none), for what it lacks cannot be carried there.

    What pinner never placed, or somebody else has moved since, is left. A guest that pinner did not place gives a plan
    without changes.
    """
    past = _past(done)
    online = snapshot.topology.online
    here = (each for each in snapshot.guests if each.uuid == guest)
    made = tuple(change for each in here for change in _changes(each, past, online & within or online, reason))
    request = Request(guests=(guest,))
    planned = {mask.tid: change.after for change in made for mask in change.before}
    return Plan(
        id=plan_id(f"{snapshot_id} release {guest} {within}".encode()),
        host=snapshot.host,
        request=request,
        basis=Basis(snapshot_id, snapshot.taken_at, snapshot.topology.fingerprint),
        roles=Roles(CpuSet(), CpuSet(), CpuSet(), ("no CPUs are shared out: the guest gets back what it had",)),
        wanted=tuple(Wanted(change.target, change.after, reason) for change in made),
        changes=made,
        unplaced=(),
        skipped=(),
        warnings=(),
        score_before=score(snapshot, request.busy_threshold, {}),
        score_after=score(snapshot, request.busy_threshold, planned),
    )


def _past(done: Iterable[Change]) -> _Past:
    past = _Past()
    for change in done:
        past.last[key(change.target)] = change.after
        for mask in change.before:
            past.first.setdefault((mask.tid, mask.started), mask.cpus)
    return past


def _changes(guest: Guest, past: _Past, reachable: CpuSet, reason: str) -> Iterator[Change]:
    for target, threads in guest_targets(guest):
        placed = past.last.get(key(target))
        if placed is None or all(thread.affinity != placed for thread in threads):
            continue
        cpus = _had(threads, past.first) & reachable or reachable
        if cpus != placed:
            masks = tuple(ThreadMask(thread.tid, thread.started, thread.affinity) for thread in threads)
            yield Change(target, masks, cpus, reason)


def _had(threads: Iterable[Thread], first: Mapping[tuple[int, int], CpuSet]) -> CpuSet:
    """All that any of the threads could use; nothing where none of them is older than the placement."""
    return union(first.get((thread.tid, thread.started), CpuSet()) for thread in threads)
