"""SUSE's guide for SAP HANA: 224 CPUs on 4 nodes, core k is CPUs k and k+112. vCPUs 2k and 2k+1 are pinned to the pair
of core k + 4: here 32 vCPUs on cores 4-19 of node 0, which has cores 0-27."""

from support.hosts import cpus, guest, process, snapshot, topology

from pinner.model.guest.guest import OperatorPin

PAIRS = [f"{core},{core + 112}" for core in range(4, 20)]
PINS = tuple(OperatorPin("vcpu", vcpu, cpus(PAIRS[vcpu // 2]), "definition") for vcpu in range(32))

HOST = snapshot(
    topology({node: [[c, c + 112] for c in range(28 * node, 28 * node + 28)] for node in range(4)}),
    [
        guest(1, 32, cpus("0-223"), pins=[str(pin.cpus) for pin in PINS], operator_pins=PINS),
        guest(2, 8, cpus("0-223")),
    ],
    [process(300, 40.0, "0-223")],
)

OWNED = cpus("4-19,116-131")
# An eighth of a node's 56 CPUs are 3 cores: on node 0 the cores 0-2 for housekeeping, and 3 and 20-21 for emulators.
HOUSEKEEPING_ON_0, EMULATOR_ON_0 = cpus("0-2,112-114"), cpus("3,20-21,115,132-133")
