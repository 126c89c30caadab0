"""Red Hat's OpenStack on OVS-DPDK with tuned's profile cpu-partitioning: the boot has nohz_full and rcu_nocbs for CPUs
4-39,44-79 and no isolcpus; tuned itself keeps processes and interrupts on 0-3,40-43 (tuned.non_isolcpus), which are
the lcores and cpu_shared_set. Threads of Open vSwitch poll on 4-5,44-45, and Nova dedicates 6-39,46-79.

Right: every CPU with nohz_full belongs to one who wants it alone, so all of them are isolated (4-39,44-79), none loses
nohz_full, and tuned goes on.
"""

from dataclasses import replace

from support.hosts import KERNEL, cpus, guest, interleaved, process, snapshot

from pinner.model.guest.guest import NovaIdentity
from pinner.model.guest.nova import NovaConf
from pinner.model.snapshot import OvsDpdk, OvsMasks

HOST_CPUS, PMDS, DEDICATED, ALONE = "0-3,40-43", "4-5,44-45", "6-39,46-79", "4-39,44-79"
_LINE = f"quiet skew_tick=1 nohz=on nohz_full={ALONE} rcu_nocbs={ALONE} tuned.non_isolcpus=00000f00,0000000f"
TOPOLOGY = interleaved(40, nohz_full=ALONE, kernel=replace(KERNEL, command_line=_LINE))
_SWITCH = process(
    900, 400.0, HOST_CPUS, "4", "5", "44", "45", name="ovs-vswitchd", reasons=["restricted"] * 5, reserves="privileged"
)
_PINNED = guest(
    1,
    4,
    cpus(HOST_CPUS),
    pins=["6", "46", "8", "48"],
    dedicated=True,
    nova=NovaIdentity("i-1", "p-1", "u-1", "m1.small"),
)
HOST = snapshot(
    TOPOLOGY,
    [_PINNED],
    [_SWITCH, process(700, 0.1, HOST_CPUS, name="tuned")],
    baseline=cpus(HOST_CPUS),
    dedicated=cpus(DEDICATED),
    shared=cpus(HOST_CPUS),
    nova=NovaConf(("/etc/nova/nova.conf",), DEDICATED, HOST_CPUS),
    ovs=OvsDpdk(OvsMasks(cpus(PMDS), cpus(HOST_CPUS)), cpus(PMDS)),
)
