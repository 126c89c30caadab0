"""Guests that an operator pinned to node 0, of 2 nodes with 16 CPUs each: one with a vCPU for each CPU, and one with 4
vCPUs, which cannot use a node alone. In a third host the guest has 2 vCPUs pinned to 0-3."""

from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.guest.guest import Guest, OperatorPin

NODE = cpus("0-15")


def _host(vcpus: int, pin: str):
    pins = tuple(OperatorPin("vcpu", vcpu, cpus(pin), "definition") for vcpu in range(vcpus))
    pinned: Guest = guest(1, vcpus, cpus("0-31"), pins=[pin] * vcpus, operator_pins=pins)
    return snapshot(plain(32, nodes=2), [pinned, guest(2, 4, cpus("0-31"))], [process(300, 40.0, "0-31")])


FULL, FEW, PART = _host(16, "0-15"), _host(4, "0-15"), _host(2, "0-3")

# FULL owns its node. FEW has 4 vCPUs on 16 cores and owns none: other guests share its node. So they do with PART, but
# the automatic sets of node 0 are 4-5 and 6-7.
ROLES_OF_FULL = cpus("16-31")
HOUSEKEEPING_OF_PART, EMULATOR_OF_PART = cpus("4-5,16-17"), cpus("6-7,18-19")
