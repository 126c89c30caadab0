"""Open vSwitch with DPDK beside Nova, as Red Hat's guide for OVS-DPDK lays it out: OvsDpdkCoreList (dpdk-lcore-mask) is
NovaComputeCpuSharedSet, one core of each node; OvsPmdCoreList, the next core of each node, polls; Nova dedicates the
rest. IsolCpusList has the PMD CPUs and the dedicated ones.

Right: the host, emulators and floating guests share 0-1,16-17; nobody gets 2-3,18-19 or 4-15,20-31; nothing is wrong,
and no CPU is to be isolated besides those that are.
"""

from dataclasses import replace

from support.hosts import KERNEL, cpus, guest, interleaved, process, snapshot

from pinner.model.guest.nova import NovaConf
from pinner.model.snapshot import OvsDpdk, OvsMasks

LCORES, PMDS, DEDICATED, ISOLATED = "0-1,16-17", "2-3,18-19", "4-15,20-31", "2-15,18-31"
TOPOLOGY = interleaved(
    16,
    isolated=ISOLATED,
    nohz_full=ISOLATED,
    kernel=replace(KERNEL, command_line=f"quiet isolcpus={ISOLATED} nohz_full={ISOLATED} rcu_nocbs={ISOLATED}"),
)
PINNED = guest(1, 4, cpus(LCORES), pins=["4", "20", "6", "22"], dedicated=True)
FLOATING = guest(2, 2, cpus(LCORES))
MASKS = OvsDpdk(OvsMasks(cpus(PMDS), cpus(LCORES)), cpus(PMDS))


def switch(lcores: str, *pmds: str):
    """ovs-vswitchd: its main thread on the lcores, which its owner chose, and its polling threads."""
    masks = (lcores, *pmds)
    return process(
        900, 100.0 * len(masks), *masks, name="ovs-vswitchd", reasons=["restricted"] * len(masks), reserves="privileged"
    )


HOST = snapshot(
    TOPOLOGY,
    [PINNED, FLOATING],
    [switch(LCORES, "2", "3", "18", "19")],
    dedicated=cpus(DEDICATED),
    shared=cpus(LCORES),
    nova=NovaConf(
        ("/etc/nova/nova.conf",),
        DEDICATED,
        LCORES,
        format="both",
        topics=("versioned_notifications",),
        drivers=("messagingv2",),
    ),
    ovs=MASKS,
)

PLAIN = snapshot(
    interleaved(16),
    [guest(2, 2, cpus("0-31"))],
    [switch("4,20", "2", "3", "18", "19")],
    ovs=OvsDpdk(OvsMasks(cpus(PMDS), cpus("4,20")), cpus(PMDS)),
)
"""The same switch without Nova and isolation, its lcores on the third core of node 0. Right: housekeeping of node 0 is
that core, which the switch's main thread uses already; the PMD CPUs are in no set."""
