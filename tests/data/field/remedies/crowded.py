"""Nova's sets are 2-17 and 18-47 of 48 CPUs (c and c+24 are a core): CPUs 0 and 1 alone are the host's.

Right: no line that puts the emulators of all six guests on CPU 1, but the plan: it gives them several CPUs, none of
which is a sibling of the CPUs of g1 (2-5: 26-29).
"""

from dataclasses import replace

from support.hosts import GIB, cpus, guest, process, snapshot, topology

from pinner.model.guest.guest import NovaIdentity
from pinner.model.guest.nova import NovaConf

SHARED = cpus("18-47")


def _nova(**specs: str) -> NovaIdentity:
    return NovaIdentity("i-1", "p-1", "u-1", "m1.small", specs, has_specs=True)


def _on_its_vcpus(guest_):
    threads = tuple(replace(thread, affinity=cpus("2-5")) for thread in guest_.emulator.threads)
    return replace(guest_, emulator=replace(guest_.emulator, pin=cpus("2-5"), threads=threads))


HOST = snapshot(
    topology({0: [[c, c + 24] for c in range(12)], 1: [[c, c + 24] for c in range(12, 24)]}),
    [
        _on_its_vcpus(
            guest(1, 4, SHARED, pins=["2", "3", "4", "5"], dedicated=True, nova=_nova(**{"hw:cpu_policy": "dedicated"}))
        ),
        *(guest(n, 4, SHARED, nova=_nova(), memory={n % 2: 2 * GIB}) for n in range(2, 6)),
        guest(6, 4, SHARED, nova=_nova(**{"pinner:strategy": "exclusive"})),
    ],
    [process(300, 120.0, "0-47", "0-47", name="calico-node"), process(320, 30.0, "0-47", name="kubelet")],
    dedicated=cpus("2-17"),
    shared=SHARED,
    nova=NovaConf((), dedicated="2-17", shared="18-47"),
)
