"""A guest whose operator pins its 4 vCPUs one to one after a policy's run, on one node of 32 CPUs: onto housekeeping's
CPUs 0-3, or onto those of the vCPUs."""

from dataclasses import replace

from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import OperatorPin
from pinner.model.snapshot import OvsDpdk, OvsMasks, Snapshot

# The run gives 0-3 to housekeeping, 4-7 to emulators, and 8-31 to vCPUs.
BEFORE = snapshot(plain(32), [guest(2, 8, cpus("0-31"))], [process(300, 40.0, "0-31")])


def pinned_since(host: Snapshot, pins: str) -> Snapshot:
    each = [CpuSet.one(cpu) for cpu in cpus(pins)]
    written = tuple(OperatorPin("vcpu", vcpu, cpu, "definition") for vcpu, cpu in enumerate(each))
    newcomer = guest(1, len(each), cpus("0-31"), pins=[str(cpu) for cpu in each], operator_pins=written)
    return replace(host, guests=(newcomer, *host.guests))


# Pins to 0-3 leave housekeeping no CPU: all sets are made anew beside them, the lowest CPUs first.
ANEW = (cpus("4-7"), cpus("8-11"), cpus("12-31"))

# Pins to 2-5 leave both automatic sets a part, and pins to 8-11 all but these to the vCPUs.
SHRUNK = (cpus("0-1"), cpus("6-7"), cpus("8-31"))
WITHOUT_8_TO_11 = (cpus("0-3"), cpus("4-7"), cpus("12-31"))

# Pins to 4-7, and Open vSwitch polls on 0-3: all sets are made anew, and none has 4-7.
POLLING = OvsDpdk(OvsMasks(pmd=cpus("0-3")), polling=cpus("0-3"))
BESIDE_POLLING = (cpus("8-11"), cpus("12-15"), cpus("16-31"))
