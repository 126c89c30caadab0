"""Finds the processes whose restricted affinity keeps its CPUs (see pinner.model.machine.process.Reserves): those that
work, an administrator's, and configured ones, since any user may restrict an idle one; not jobs that have just
started."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pinner.host.kernel import files, procfs
from pinner.host.kernel.partitions import UnitReader
from pinner.host.processes.qemu import user_id
from pinner.model.errors import Gone
from pinner.model.machine.process import RESERVING_LOAD, STANDING_SECONDS, Process, Reserves, Thread

_LEAST_WORK = 1.0
"""Seconds on a CPU. A new thread used much of its short life."""

USER = "user:"
"""The prefix of a user in [host] affinity_owners."""

_ALL_USERS = ["0", "0", "4294967295"]
"""The uid_map without a user namespace of its own."""


@dataclass(frozen=True, slots=True)
class AffinityOwners:
    processes: frozenset[str] = frozenset()
    users: frozenset[int] = frozenset()

    @classmethod
    def of(cls, names: Iterable[str]) -> "AffinityOwners":
        """A user that this host does not know is left out."""
        listed = frozenset(names)
        users = (user_id(name.removeprefix(USER)) for name in listed if name.startswith(USER))
        return cls(
            frozenset(name for name in listed if not name.startswith(USER)),
            frozenset(user for user in users if user is not None),
        )


NO_OWNERS = AffinityOwners()


def with_reservations(
    root: Path, processes: Iterable[Process], owners: AffinityOwners, uptime: float | None
) -> tuple[Process, ...]:
    """Processes with a restricted thread get user, cgroup limits and reservation. ``uptime``: seconds since boot."""
    processes, units = tuple(processes), UnitReader(root)
    found = (_with_reservation(root, process, owners, uptime, units) for process in processes)
    return tuple(found) if uptime is None else tuple(_with_age(found, _service_starts(processes), uptime))


def _with_reservation(
    root: Path, process: Process, owners: AffinityOwners, uptime: float | None, units: UnitReader
) -> Process:
    restricted = [thread for thread in process.threads if thread.immovable_reason == "restricted"]
    if not restricted:
        return process
    process = replace(_with_user(root, process, owners), cpu_limits=units.limits_of(process.pid))
    if not process.reserves and uptime is not None and any(_has_worked(thread, uptime) for thread in restricted):
        return replace(process, reserves="worked")
    return process


def _service_starts(processes: Iterable[Process]) -> dict[str, int]:
    starts: dict[str, int] = {}
    for process in processes:
        if process.unit.endswith(".service"):
            starts[process.unit] = min(process.started, starts.get(process.unit, process.started))
    return starts


def _with_age(processes: Iterable[Process], services: Mapping[str, int], uptime: float) -> Iterator[Process]:
    """A daemon that has just been restarted is as old as its service, and keeps its CPUs at once."""
    standing = STANDING_SECONDS * procfs.HERTZ
    for process in processes:
        is_restricted = any(thread.immovable_reason == "restricted" for thread in process.threads)
        is_young = uptime * procfs.HERTZ - process.started < standing
        with_service = process.unit in services and process.started - services[process.unit] < standing
        recent = is_restricted and is_young and not with_service and process.reserves != "configured"
        yield replace(process, recent=True) if recent else process


def _has_worked(thread: Thread, uptime: float) -> bool:
    work = (thread.run_ns or 0) / 1e9
    age = uptime - thread.started / procfs.HERTZ
    return work >= _LEAST_WORK and work * 100 > RESERVING_LOAD * age


def _with_user(root: Path, process: Process, owners: AffinityOwners) -> Process:
    try:
        status = files.read(f"{root}/proc/{process.pid}/status")
        users = procfs.users(status)
        privileged = _is_privileged(root, process.pid, users, status)
        if not users or procfs.started(root, process.pid) != process.started:
            return process
    except (OSError, Gone):
        return process
    reserves: Reserves = "privileged" if privileged else ""
    if process.name in owners.processes or users[0] in owners.users:
        reserves = "configured"
    return replace(process, user=users[0], reserves=reserves)


def _is_privileged(root: Path, pid: int, users: Collection[int], status: bytes) -> bool:
    """A setuid program has its caller's affinity, so all its user ids must be the same. In a user namespace of its own
    anybody has every capability."""
    if set(users) == {0}:
        return True
    if not procfs.capabilities(status, b"CapEff") & procfs.CAP_SYS_NICE or len(set(users)) != 1:
        return False
    return (files.text(root / f"proc/{pid}/uid_map") or "").split() == _ALL_USERS
