"""Says who delays a guest on this machine."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from pinner.host.kernel import files, procfs, tracefs
from pinner.host.measure.waiting import Waits, waits
from pinner.model.cpuset import union
from pinner.model.errors import Gone
from pinner.model.guest.guest import Guest
from pinner.model.kinds import TargetKind
from pinner.model.processes.blame import Blame, Culprit, SchedEvent, Switch, Waited

MOST = 50
"""The most threads that are named."""


def blame(
    root: Path, guest: Guest, guests: Iterable[Guest], seconds: float, sleep: Callable[[float], None] = time.sleep
) -> Blame:
    """The threads that ran while those of ``guest`` waited, in the next ``seconds``. ``guests`` are all of the host.

    Raises NotPermitted, Busy, and Gone for a guest without threads.
    """
    roles = _roles(guest)
    if not roles:
        raise Gone(f"guest {guest.name}")
    cpus = union(thread.affinity for threads in guest.threads_by_target.values() for thread in threads)
    names: dict[int, str] = {}
    with tracefs.record(root, cpus, seconds, sleep) as trace:
        found = waits(_named(trace.events, names), roles.keys(), trace.end)
    by_role: defaultdict[TargetKind, float] = defaultdict(float)
    for (thread, _), each in found.items():
        by_role[roles[thread]] += each * 1000
    waited = tuple(Waited(role, round(by_role.get(role, 0.0), 3)) for role in dict.fromkeys(roles.values()))
    return Blame(guest.name, round(trace.seconds, 3), waited, _culprits(root, found, guests, names), trace.lost)


def _named(events: Iterable[SchedEvent], names: dict[int, str]) -> Iterator[SchedEvent]:
    """The same events. Puts the names of the threads that ran into ``names``."""
    for event in events:
        if isinstance(event, Switch):
            names[event.after] = event.name
        yield event


def _roles(guest: Guest) -> dict[int, TargetKind]:
    return {thread.tid: target.kind for target, threads in guest.threads_by_target.items() for thread in threads}


def _culprits(root: Path, found: Waits, guests: Iterable[Guest], names: Mapping[int, str]) -> tuple[Culprit, ...]:
    seconds: defaultdict[int, float] = defaultdict(float)
    for (_, ran), waited in found.items():
        seconds[ran] += waited
    owners = {tid: guest.name for guest in guests for tid in _roles(guest)}
    total = sum(seconds.values())
    worst = sorted((tid for tid in seconds if seconds[tid] > 0), key=lambda tid: (-seconds[tid], tid))[:MOST]
    return tuple(_culprit(root, tid, seconds[tid], total, owners.get(tid, ""), names.get(tid, "")) for tid in worst)


def _culprit(root: Path, tid: int, seconds: float, total: float, guest: str, traced: str) -> Culprit:
    """The thread as /proc shows it now; one that has ended has only the name of the trace."""
    share, ms = round(seconds / total, 4), round(seconds * 1000, 3)
    if not tid:
        return Culprit(0, "idle", 0, "", "", ms, share)
    try:
        name = procfs.parse_stat(files.read(f"{root}/proc/{tid}/stat")).name
        status = files.decode(files.read(f"{root}/proc/{tid}/status"))
        pid = int(next(line for line in status.splitlines() if line.startswith("Tgid:")).split()[1])
        unit = procfs.parse_unit(files.read(f"{root}/proc/{tid}/cgroup"))
    except (OSError, ValueError, IndexError, StopIteration):
        return Culprit(tid, traced, 0, "", guest, ms, share)
    return Culprit(tid, name, pid, unit, guest, ms, share)
