"""Kubernetes' static CPU manager as a contender: its published rules for one container, written anew.

Read from: pkg/kubelet/cm/cpumanager/cpu_assignment.go of kubernetes/kubernetes (1.23 and later; the step for caches
since 1.32), the packed form. The unit tests compare with examples of its own tests.

Things (nodes, sockets, caches, cores) are sorted by their number of free CPUs, ascending, then by id; only things with
free CPUs count. Where a socket has several nodes, sockets are sorted first and the nodes within them, otherwise the
other way round. Cores are sorted within the smaller of the two. For a container that needs n CPUs:

1. Take whole unused nodes, or sockets where these are larger, as long as n is at least their size; then the other of
   the two.
2. With the option ``prefer-align-cpus-by-uncorecache`` take whole unused caches likewise. Then take the rest from the
   first cache whose lowest cores have exactly the CPUs that are missing.
3. Take whole unused cores likewise.
4. Take single CPUs, core by core.

There is no alignment with a node: a topology manager that restricts containers to one node is another component, and
off by default.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.quality import Places

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Topology

Mask = int
"""A set of CPUs: bit n is CPU n."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The CPUs of each thing, by ascending id."""

    outer: tuple[Mask, ...]
    """Nodes or sockets, whichever are sorted first."""
    inner: Mapping[Mask, tuple[Mask, ...]]
    """The sockets or nodes within each of these."""
    caches: Mapping[Mask, tuple[Mask, ...]]
    """The caches within each of the inner ones."""
    cores: Mapping[Mask, tuple[Mask, ...]]
    """The cores within each of the inner ones."""
    threads: int
    """CPUs of a core."""

    @classmethod
    def of(cls, hardware: Topology) -> "Machine":
        """The machine of a topology."""
        nodes = _by_id((cpu.node, cpu.id) for cpu in hardware.cpus)
        sockets = _by_id((cpu.socket, cpu.id) for cpu in hardware.cpus)
        cores = _by_id((min(cpu.siblings), cpu.id) for cpu in hardware.cpus)
        outer, inner = (nodes, sockets) if len(sockets) >= len(nodes) else (sockets, nodes)
        return cls(
            outer=outer,
            inner=_within(outer, inner),
            caches=_within(inner, tuple(map(_mask, hardware.l3_domains))),
            cores=_within(inner, cores),
            threads=max(core.bit_count() for core in cores),
        )


def take(machine: Machine, free: Mask, count: int, *, align_caches: bool = False) -> Mask | None:
    """The CPUs for a container that needs ``count`` CPUs; None where fewer are free."""
    if count > free.bit_count():
        return None
    found = _Taken(machine, free, count)
    found.take_whole(found.sorted(machine.outer))
    found.take_whole(found.inner())
    if align_caches:
        found.take_caches()
    found.take_whole(found.all(machine.cores))
    found.take_single()
    return found.cpus


def place(hardware: Topology, pool: CpuSet, guests: Sequence[Guest], *, align_caches: bool = False) -> Places:
    """Place the guests in this order, each as one container, on an empty host."""
    machine, free = Machine.of(hardware), _mask(pool)
    places: dict[str, Sequence[int] | None] = {}
    for guest in guests:
        cpus = take(machine, free, len(guest.vcpus), align_caches=align_caches)
        places[guest.name] = None if cpus is None else list(ids(cpus))
        free &= ~(cpus or 0)
    return places


def ids(mask: Mask) -> Iterable[int]:
    """The CPUs of a mask, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class _Taken:
    """The CPUs that one container has taken so far."""

    def __init__(self, machine: Machine, free: Mask, missing: int) -> None:
        self._machine = machine
        self._free = free
        self._missing = missing
        self.cpus: Mask = 0

    def sorted(self, things: Iterable[Mask]) -> list[Mask]:
        """The things that have free CPUs, those with the fewest first."""
        return sorted(
            (thing for thing in things if thing & self._free), key=lambda each: (each & self._free).bit_count()
        )

    def inner(self) -> list[Mask]:
        """The inner ones of nodes and sockets, sorted within the sorted outer ones."""
        return [each for outer in self.sorted(self._machine.outer) for each in self.sorted(self._machine.inner[outer])]

    def all(self, things: Mapping[Mask, Iterable[Mask]]) -> list[Mask]:
        """Caches or cores, sorted within the inner ones."""
        return [each for inner in self.inner() for each in self.sorted(things[inner])]

    def take_whole(self, things: Iterable[Mask]) -> None:
        """Take unused things as long as the container needs at least their CPUs."""
        for thing in things:
            if self._missing >= thing.bit_count() and thing & self._free == thing:
                self._take(thing)

    def take_caches(self) -> None:
        """Take whole unused caches, then the rest from one cache that has it on its lowest cores."""
        self.take_whole(self.all(self._machine.caches))
        for inner in self.inner() if self._missing else ():
            for cache in self.sorted(self._machine.caches[inner]):
                cpus = self._lowest_cores(inner, cache & self._free)
                if cpus.bit_count() == self._missing:
                    self._take(cpus)
                    return

    def take_single(self) -> None:
        """Take single CPUs, core by core."""
        for core in self.all(self._machine.cores) if self._missing else ():
            for cpu in ids(core & self._free):
                if self._missing:
                    self._take(1 << cpu)

    def _lowest_cores(self, inner: Mask, cpus: Mask) -> Mask:
        """The free CPUs of as many cores as the container still needs, without the last CPU that it does not need."""
        threads = self._machine.threads
        cores = [core & cpus for core in self._machine.cores[inner] if core & cpus]
        found = sum(cores[: -(-self._missing // threads)])
        if self._missing % 2 and threads > 1 and found.bit_count() > self._missing:
            found ^= 1 << found.bit_length() - 1
        return found

    def _take(self, cpus: Mask) -> None:
        self.cpus |= cpus
        self._free &= ~cpus
        self._missing -= cpus.bit_count()


def _by_id(pairs: Iterable[tuple[int | None, int]]) -> tuple[Mask, ...]:
    """The CPUs of each id, by ascending id, from pairs of an id and a CPU."""
    found: dict[int, Mask] = {}
    for number, cpu in pairs:
        key = -1 if number is None else number
        found[key] = found.get(key, 0) | 1 << cpu
    return tuple(mask for _, mask in sorted(found.items()))


def _within(outer: Iterable[Mask], things: Sequence[Mask]) -> dict[Mask, tuple[Mask, ...]]:
    return {each: tuple(thing for thing in things if thing & each) for each in outer}


def _mask(cpus: CpuSet) -> Mask:
    return sum(1 << cpu for cpu in cpus)
