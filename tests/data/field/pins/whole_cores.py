"""A guest whose 2 vCPUs are pinned to a whole core each, on 16 cores of two threads: core c is CPUs c and c+16."""

from support.hosts import cpus, guest, process, snapshot, topology

from pinner.model.guest.guest import OperatorPin

PINS = (OperatorPin("vcpu", 0, cpus("0,16"), "live"), OperatorPin("vcpu", 1, cpus("1,17"), "live"))

HOST = snapshot(
    topology({0: [[c, c + 16] for c in range(16)]}),
    [guest(1, 2, cpus("0-31"), pins=["0,16", "1,17"], operator_pins=PINS), guest(2, 4, cpus("0-31"))],
    [process(300, 40.0, "0-31")],
)

# Both threads of both cores are the guest's. An eighth of 32 CPUs is 2 cores for each automatic set.
OWNED, HOUSEKEEPING, EMULATOR = cpus("0-1,16-17"), cpus("2-3,18-19"), cpus("4-5,20-21")
