"""A build host: 16 CPUs on one node, a guest, a ceph-osd of root that its unit pins to CPU 12, and a test runner whose
Python worker, of root, pinned itself to CPU 1 some seconds ago."""

from dataclasses import replace

from support.hosts import cpus, guest, plain, process, snapshot

OSD = process(300, 40.0, "12", name="ceph-osd", reasons=["restricted"], user=0, reserves="privileged")
RUNNER = process(400, 60.0, "0-15", name="pytest")
WORKER = process(500, 90.0, "1", name="python", reasons=["restricted"], user=0, reserves="privileged", recent=True)
STANDING_WORKER = replace(WORKER, recent=False)

QUIET = snapshot(plain(16), [guest(1, 4, cpus("0-15"))], [OSD, RUNNER])
"""Before the worker."""
BUSY = replace(QUIET, processes=(*QUIET.processes, WORKER))
LATER = replace(QUIET, processes=(*QUIET.processes, STANDING_WORKER))

# An eighth of 16 CPUs for each of the two sets, then the others without CPU 12: the same with and without the worker.
HOUSEKEEPING, EMULATOR, VCPU = cpus("0-1"), cpus("2-3"), cpus("4-11,13-15")
# Once its restriction stands, CPU 1 is the worker's, too.
HOUSEKEEPING_LATER, EMULATOR_LATER, VCPU_LATER = cpus("0,2"), cpus("3-4"), cpus("5-11,13-15")
