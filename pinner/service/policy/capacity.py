"""The room of hosts for more guests."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from pinner.model.cpuset import MAX_CPUS
from pinner.model.errors import Invalid, PinnerError
from pinner.model.plan.plan import Placement
from pinner.model.plan.request import Request
from pinner.model.questions import Capacity, GuestShape, with_sizes
from pinner.model.snapshot import Snapshot
from pinner.planning.placement import in_boot
from pinner.planning.questions import capacity
from pinner.planning.questions.capacity import shape_rooms
from pinner.planning.request.processes import pruned
from pinner.service.hosts.hosts import Hosts
from pinner.service.metrics import Metrics
from pinner.service.policy.observation import Observer
from pinner.service.policy.policies import HostPolicies

FRESH_SECONDS = 2.0
"""Callers within this time share a reading: schedulers may ask for each new guest."""


@dataclass(frozen=True, slots=True)
class _Read:
    at: float
    snapshot: Snapshot
    request: Request
    placement: Placement | None
    capacity: Capacity


class CapacityReader:
    def __init__(
        self,
        hosts: Hosts,
        policies: HostPolicies,
        observer: Observer,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hosts = hosts
        self._policies = policies
        self._observer = observer
        self._metrics = metrics
        self._clock = clock
        self._reading: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._latest: dict[str, _Read] = {}

    def capacity(self, host: str, vcpus: int | None = None, shape: GuestShape | None = None) -> Capacity:
        if vcpus is not None and not 1 <= vcpus <= MAX_CPUS:
            raise Invalid("vcpus", vcpus, f"a number of vCPUs from 1 to {MAX_CPUS}")
        self._hosts.require(host)
        with self._reading[host]:
            read = self._latest.get(host)
            if read is None or self._clock() - read.at >= FRESH_SECONDS:
                read = self._latest[host] = self._read(host)
        sizes = _sizes(len(read.snapshot.topology.online)) if vcpus is None else (vcpus,)
        room = with_sizes(read.capacity, sizes)
        if shape is None:
            return room
        return replace(room, shape=shape, fitting=shape_rooms(read.snapshot, read.request, shape, read.placement))

    def measure(self, host: str) -> None:
        """Metrics of a host that cannot be read are deleted."""
        try:
            self.capacity(host)
        except PinnerError:
            self._metrics.without_room(host)

    def _read(self, host: str) -> _Read:
        policy = self._policies.find(host)
        placement = self._observer.placement(host, policy)
        taken = self._hosts.observe(host, 0.0)
        placement = in_boot(placement, taken.boot) if placement else None
        request = policy.request if policy else placement.request if placement else Request()
        mode = policy.mode if policy else None
        taken = pruned(taken, request, placement)
        room = capacity.capacity(taken, request, placement, mode)
        self._metrics.room(room)
        return _Read(self._clock(), taken, request, placement, room)


def _sizes(cpus: int) -> tuple[int, ...]:
    return tuple(1 << power for power in range(max(cpus, 1).bit_length()))
