"""Fits guests to a host and books them, one after the other, with Nova's own code.

Run ``nova_fit.py`` by an interpreter that has Nova; it needs no pinner. It prints Nova's version, then reads one JSON
object per line from stdin: ``cells`` and ``guests`` (see nova_peer.py). It prints one object per line: the
milliseconds of CPU and wall time, the part of the CPU time for fitting alone, and the CPUs of each guest, in the order
of its vCPUs; null where Nova finds no place.

The result depends on nothing else: each line begins with an empty host.
"""

import json
import sys
import time
from importlib.metadata import version

from nova import objects
from nova.virt import hardware

PAGE_KIB = 4


def host(cells):
    """Nova's value for the whole host, with all CPUs dedicated."""
    return objects.NUMATopology(
        cells=[
            objects.NUMACell(
                id=cell["id"],
                cpuset=set(),
                pcpuset={cpu for core in cell["cores"] for cpu in core},
                memory=cell["memory_mib"],
                cpu_usage=0,
                memory_usage=0,
                pinned_cpus=set(),
                siblings=[set(core) for core in cell["cores"]],
                mempages=[
                    objects.NUMAPagesTopology(size_kb=PAGE_KIB, total=cell["memory_mib"] * 1024 // PAGE_KIB, used=0)
                ],
                socket=cell["socket"],
            )
            for cell in cells
        ]
    )


def instance(guest):
    """Nova's value for one guest: one cell of dedicated CPUs, thread policy ``prefer``."""
    return objects.InstanceNUMATopology(
        cells=[
            objects.InstanceNUMACell(
                id=0,
                cpuset=set(),
                pcpuset=set(range(guest["vcpus"])),
                memory=guest["memory_mib"],
                cpu_policy="dedicated",
                cpu_thread_policy="prefer",
            )
        ]
    )


def place(cells, guests):
    """Fit and book all guests; the times are those of the two calls."""
    topology, wanted = host(cells), [(guest["name"], instance(guest)) for guest in guests]
    places, fitting, booking, wall = {}, 0.0, 0.0, 0.0
    for name, asked in wanted:
        began, cpu = time.perf_counter(), time.process_time()
        fitted = hardware.numa_fit_instance_to_host(topology, asked, provider_mapping={})
        fitting += time.process_time() - cpu
        if fitted is not None:
            cpu = time.process_time()
            topology = hardware.numa_usage_from_instance_numa(topology, fitted)
            booking += time.process_time() - cpu
        wall += time.perf_counter() - began
        pins = fitted.cells[0].cpu_pinning if fitted is not None else {}
        places[name] = [cpu for _, cpu in sorted(pins.items())] if fitted is not None else None
    return {
        "cpu_ms": (fitting + booking) * 1000,
        "fitting_ms": fitting * 1000,
        "wall_ms": wall * 1000,
        "places": places,
    }


def main():
    """Answer until stdin ends."""
    objects.register_all()
    print(version("nova"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(place(asked["cells"], asked["guests"])), flush=True)


if __name__ == "__main__":
    main()
