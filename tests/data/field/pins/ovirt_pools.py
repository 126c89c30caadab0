"""oVirt 4.5 pins each vCPU of every shared guest, while it runs, to all CPUs that no dedicated guest has. 16 cores of
two threads on two nodes: core c is CPUs c and c + 16, on node c modulo 2. Guest 1 has cores 4 and 6 to itself."""

from dataclasses import replace

from support.hosts import GIB, cpus, guest, interleaved, process, snapshot

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import OperatorPin
from pinner.model.snapshot import Snapshot

DEDICATED = cpus("4,6,20,22")
POOL = cpus("0-31") - DEDICATED

_PINS = tuple(OperatorPin("vcpu", vcpu, CpuSet.one(cpu), "definition") for vcpu, cpu in enumerate(DEDICATED))
_OWNER = guest(1, 4, cpus("0-31"), pins=list(map(str, DEDICATED)), operator_pins=_PINS, memory={0: 2 * GIB})


def _shared(number: int, vcpus: int = 4):
    pins = tuple(OperatorPin("vcpu", vcpu, POOL, "live") for vcpu in range(vcpus))
    memory = {number % 2: 2 * GIB}
    return guest(number, vcpus, cpus("0-31"), pins=[str(POOL)] * vcpus, operator_pins=pins, memory=memory)


def host(*shared: int) -> Snapshot:
    """Each with so many vCPUs."""
    guests = (_OWNER, *(_shared(number, vcpus) for number, vcpus in enumerate(shared, start=2)))
    return snapshot(interleaved(16), guests, [process(300, 140.0, "0-31", name="vdsmd")])


# The pool has 14 cores. However many vCPUs share it, it owns none of them: else no role would have a CPU. An eighth of
# a node's 16 CPUs is a core for each set.
HOSTS = {"3": host(4, 4, 4), "4": host(4, 4, 4, 4), "8": host(*[4] * 8), "one wide": host(16)}
HOUSEKEEPING, EMULATOR = cpus("0-1,16-17"), cpus("2-3,18-19")

NO_CPU = replace(
    HOSTS["4"],
    guests=tuple(
        guest(
            n,
            4,
            cpus("0-31"),
            pins=[str(4 * n + v) for v in range(4)],
            operator_pins=tuple(OperatorPin("vcpu", v, CpuSet.one(4 * n + v), "live") for v in range(4)),
        )
        for n in range(8)
    ),
)
"""Guests of 4 vCPUs have all CPUs one to one: nothing is left, and the error says what frees CPUs."""
CURE = "; to free CPUs of guests, place them (--guest) or release their pins (--release-cpuset)"
