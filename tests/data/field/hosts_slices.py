"""AllowedCPUs= of system.slice and user.slice keeps the host's processes off the guests' CPUs (what guides for passed
through devices set while a guest runs). init.scope, and so process 1, has every CPU."""

from dataclasses import replace

from support.hosts import cpus, guest, process, snapshot, topology

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import OperatorPin
from pinner.model.machine.process import CpuLimit
from pinner.model.snapshot import Snapshot

TOP = topology({0: [[core, core + 16] for core in range(16)]})
"""16 cores of two threads: core c is CPUs c and c + 16."""


def daemon(pid: int, load: float, slices: str, unit: str, *below: CpuLimit, mask: str = "", name: str = "dockerd"):
    limits = (CpuLimit(unit, cpus(slices)), *below)
    return process(
        pid, load, mask or slices, name=name, reasons=["restricted"], reserves="privileged", cpu_limits=limits
    )


def host(slices: str, *guests, more=(), top=TOP) -> Snapshot:
    inside = (
        daemon(300, 150.0, slices, "user.slice", name="kwin"),
        daemon(320, 20.0, slices, "system.slice"),
        daemon(340, 0.0, slices, "system.slice", name="sshd"),
    )
    return snapshot(top, guests, (*inside, *more))


G1, G2 = guest(1, 16, cpus("0-31")), guest(2, 4, cpus("0-31"))
HALF = host("0-7,16-23", G1, G2, more=[process(400, 30.0, "0-31", name="kworker")])
"""The slices are housekeeping, and no process in them moves. An eighth of the other 16 CPUs is one core."""
HALF_SETS = ("0-7,16-23", "8,24", "9-15,25-31")

UPPER = host("8-15,24-31", G1, G2)
UPPER_SETS = ("8-15,24-31", "0,16", "1-7,17-23")

ORDER = [cpu for core in range(8) for cpu in (core, core + 16)]
PINS = tuple(OperatorPin("vcpu", vcpu, CpuSet.one(cpu), "definition") for vcpu, cpu in enumerate(ORDER))
PINNED = guest(
    1,
    16,
    cpus("8,24"),
    pins=list(map(str, ORDER)),
    operator_pins=(*PINS, OperatorPin("emulator", None, cpus("8,24"), "definition")),
)
BESIDE_PINNED = host("9-15,25-31", PINNED, G2)
"""An operator's guest has cores 0-7, and its emulator core 8. The slices are all that is left: the sets are inside, an
eighth of 32 CPUs each, and the host's processes move inside, too."""
BESIDE_PINNED_SETS = ("9-10,25-26", "11-12,27-28", "13-15,29-31")

OSD = daemon(500, 90.0, "0-7,16-23", "system.slice", CpuLimit("system.slice/osd.service", cpus("7,23")), mask="7,23")
WITH_OSD = replace(HALF, processes=(*HALF.processes, OSD))
"""A service with AllowedCPUs=7,23 of its own keeps its core, and the other processes of the slices leave it."""
WITH_OSD_SETS = ("0-6,16-22", "8,24", "9-15,25-31")

USERS = replace(HALF, processes=(daemon(300, 150.0, "0-2,16-18", "user.slice", name="kwin"), *HALF.processes[-1:]))
"""user.slice alone is confined: the host's services have every CPU, so this is no housekeeping set, but its users'."""
USERS_SETS = ("3-4,19-20", "5-6,21-22", "7-15,23-31")
