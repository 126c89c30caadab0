"""A guest with <vcpu cpuset='0-3'> on one node of 32 CPUs: on the CPUs that automatic sets take first elsewhere."""

from support.hosts import cpus, guest, plain, process, snapshot

INSIDE = cpus("0-3")

HOST = snapshot(
    plain(32),
    [guest(1, 4, INSIDE, restriction=INSIDE), guest(2, 4, cpus("0-31"))],
    [process(300, 40.0, "0-31")],
)

# The sets of an eighth are the lowest CPUs outside 0-3.
HOUSEKEEPING, EMULATOR, VCPU = cpus("4-7"), cpus("8-11"), cpus("0-3,12-31")
