"""Nova dedicates 1-23 of 24 CPUs (even CPUs are of node 0, odd ones of node 1), the kernel isolates 2-23, and a
real-time guest has 1,3,5,7.

Right: CPU 2 goes to the host, so its isolation ends with its place in cpu_dedicated_set.
"""

from dataclasses import replace

from support.hosts import GIB, KERNEL, cpus, guest, process, snapshot, topology

from pinner.model.guest.guest import NovaIdentity
from pinner.model.guest.nova import NovaConf

LINE = "quiet isolcpus=2-23 nohz_full=2-23 rcu_nocbs=2-23"
SPECS = {"hw:cpu_policy": "dedicated", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "^0-1"}
PINNED = guest(
    1,
    4,
    cpus("0-1"),
    pins=["1", "3", "5", "7"],
    dedicated=True,
    memory={1: 2 * GIB},
    nova=NovaIdentity("i-1", "p-1", "u-1", "rt", SPECS, has_specs=True),
)
HOST = snapshot(
    topology(
        {0: [[c] for c in range(0, 24, 2)], 1: [[c] for c in range(1, 24, 2)]},
        isolated="2-23",
        nohz_full="2-23",
        kernel=replace(KERNEL, command_line=LINE),
    ),
    [PINNED],
    [process(300, 60.0, "0-1", name="neutron")],
    dedicated=cpus("1-23"),
    shared=cpus("0"),
    nova=NovaConf((), dedicated="1-23", shared="0"),
    baseline=cpus("0-1"),
)
