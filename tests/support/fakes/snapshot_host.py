"""A host in memory with the threads and settings of a snapshot."""

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeGuard

from support.fakes.in_memory_host import InMemoryHost, Write
from support.hosts import masked

from pinner.model.change import Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed
from pinner.model.guest.guest import Guest
from pinner.model.guest.nova import Bounds
from pinner.model.kinds import TargetKind
from pinner.model.machine.process import CpuLimit
from pinner.model.machine.topology import Topology
from pinner.model.policy import Cause, Drift
from pinner.model.snapshot import Snapshot, settings
from pinner.model.states import Number, State
from pinner.planning.request.processes import process_target


class Killed(BaseException):
    """The agent's process dies."""


class SnapshotHost(InMemoryHost):
    """Satisfies LocalAgent's Machine, and tells what a snapshot of it shows now.

    Each write waits for ``gate``: so a test stops a run between two writes. Its guests are transient.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.taken = snapshot
        self.gate = threading.Semaphore(1000)
        self.failing: dict[str, str] = {}
        """By the owner of a target: why its changes fail. The run places the others."""
        self.mark_failure: Exception | None = None
        """Why no guest can be marked."""
        self.cause: Cause = "unknown"
        """The cause of each drift."""
        self.refusal: Exception | None = None
        """Why the host cannot be read for an admission."""
        self.break_at = 0
        """The number of the write, from 1, that raises ``broken``; 0: none."""
        self.broken: BaseException = RuntimeError("the agent broke")
        self.needs_sample = False
        """Whether a snapshot without a sample has no loads, as on a real host."""
        self.samples: list[float] = []
        """The sample of each snapshot, in seconds."""
        self.before_write = self._wait

    @property
    def taken(self) -> Snapshot:
        """The host now. A test sets it to a host with other guests, processes or CPUs."""
        moved = {thread.tid: thread.cpus for threads in self.threads.values() for thread in threads}
        now = masked(self._taken, moved)
        return with_settings(replace(now, guests=tuple(map(self._named, now.guests))), self.states)

    def _named(self, guest: Guest) -> Guest:
        """The guest with the pins that its metadata names, which are no operator's."""
        if not (names := self.names.get(guest.uuid)):
            return guest
        ours = {(pin.kind, pin.part, pin.cpus) for pin in names}
        others = tuple(pin for pin in guest.operator_pins if (pin.kind, pin.part, pin.cpus) not in ours)
        return replace(guest, own_pins=names, operator_pins=others)

    @taken.setter
    def taken(self, snapshot: Snapshot) -> None:
        self._taken = snapshot
        found = {process_target(each): each.threads for each in snapshot.processes}
        for guest in snapshot.guests:
            found.update(guest.threads_by_target)
        self.threads = {
            target: [ThreadMask(each.tid, each.started, each.affinity) for each in threads]
            for target, threads in found.items()
        }
        self.states = settings(snapshot)

    def snapshot(self, sample_seconds: float) -> Snapshot:
        """A snapshot of the host, as the inventory takes it."""
        self.samples.append(sample_seconds)
        now = replace(self.taken, sample_seconds=sample_seconds)
        if sample_seconds or not self.needs_sample:
            return now
        return replace(now, processes=tuple(replace(each, load=0.0) for each in now.processes))

    def inventory(self, _kinds: Collection[TargetKind], _inside: Collection[str]) -> Snapshot:
        """A snapshot for the admission of a plan."""
        if self.refusal is not None:
            raise self.refusal
        return self.taken

    def mask(self, tid: int) -> str:
        return self.kernel()[tid]

    def set_setting(self, kind: TargetKind, owner: str | int, state: State) -> None:
        """Another program changes a setting, which has this owner or number."""
        (target,) = (each for each in self.states if each.kind == kind and owner in (each.owner, each.part))
        self.states[target] = state

    def fingerprint(self) -> str:
        return self._taken.topology.fingerprint

    def online(self) -> CpuSet:
        return self._taken.topology.online

    def topology(self) -> Topology:
        return self._taken.topology

    def bounds(self) -> Bounds:
        return replace(super().bounds(), nova=self._taken.nova_owns())

    def cpu_limits(self, guest: str) -> tuple[CpuLimit, ...]:
        return next((each.cpu_limits for each in self._taken.guests if each.uuid == guest), ())

    def has_guest(self, guest: str) -> bool:
        return any(each.uuid == guest for each in self._taken.guests)

    def explain_drifts(self, drifts: tuple[Drift, ...]) -> tuple[Drift, ...]:
        return tuple(replace(drift, cause=self.cause) if drift.cause == "unknown" else drift for drift in drifts)

    def set_excluded(self, guest: str, *, excluded: bool) -> None:
        if self.mark_failure is not None:
            raise self.mark_failure
        (self.marked.add if excluded else self.marked.discard)(guest)

    def _wait(self, write: Write) -> None:
        assert self.gate.acquire(timeout=60)
        if self.break_at and len(self.writes) + 1 >= self.break_at:
            if not isinstance(self.broken, Killed):  # a dead process writes nothing more
                self.break_at = 0
            raise self.broken
        changed, _ = write
        for target in (*self.threads, *self.states) if self.failing else ():
            tids = [str(thread.tid) for thread in self.threads.get(target, ())]
            if target.owner in self.failing and changed in (str(target), *tids):
                raise ApplyFailed(str(target), self.failing[target.owner])


def with_settings(before: Snapshot, states: Mapping[Target, State]) -> Snapshot:
    """The host whose settings have these states."""

    def numbers(kind: TargetKind) -> dict[str, int]:
        return {key.owner: state.value for key, state in states.items() if key.kind == kind and _is_number(state)}

    at = {target.key: state for target, state in states.items()}
    cgroups = {target.owner: state for target, state in states.items() if target.kind == "partition"}
    found: dict[str, object] = {
        "guests": tuple(
            replace(guest, cgroups=tuple(replace(each, state=cgroups[each.path]) for each in guest.cgroups))
            for guest in before.guests
        )
    }
    if before.irqs is not None:
        irqs = (replace(each, cpus=at[each.target.key]) for each in before.irqs.irqs)
        found["irqs"] = replace(before.irqs, irqs=tuple(irqs))
    if before.governors is not None:
        found["governors"] = tuple(replace(each, governor=at[each.target.key]) for each in before.governors)
    if before.epp is not None:
        found["epp"] = tuple(replace(each, preference=at[each.target.key]) for each in before.epp)
    if before.resume_latency is not None:
        limits = (replace(each, limit=at[each.target.key]) for each in before.resume_latency)
        found["resume_latency"] = tuple(limits)
    if before.sysctls is not None:
        found["sysctls"] = {**before.sysctls, **numbers("sysctl")}
    if before.cpu_weights is not None:
        found["cpu_weights"] = {**before.cpu_weights, **numbers("weight")}
    unbound = [state for target, state in states.items() if target.kind == "workqueue"]
    if unbound:
        kernel = replace(before.topology.kernel, unbound=unbound[0])
        found["topology"] = replace(before.topology, kernel=kernel)
    return replace(before, **found)


def _is_number(state: State) -> TypeGuard[Number]:
    return isinstance(state, Number)
