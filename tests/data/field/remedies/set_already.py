"""Faults that stay although the host has the value that ends them elsewhere.

Right: no line for a value that is there. A tap has at most 8 queues, a cgroup a weight of at most 10000.
"""

from support.hosts import cpus, guest
from support.made_up.checks.check_cases_hosts import weighed
from support.made_up.readings import Seen, counted, nic, reading, tap

LONG = nic("tap1", "", queue_length=10_000, tx_queues=8)
LOSSY = reading(
    Seen(nics=(LONG,)),
    Seen(nics=(counted(LONG, tx_dropped=50, tx_packets=1000),)),
    guests=[guest(1, 16, cpus("0-15"), taps=(tap(),), vhost_threads=1)],
)
"""16 vCPUs, a queue of 10,000 packets, and 8 queues."""
HEAVY = weighed(10_000, 1, poor=(200, 10_000))
"""50 and 10,000 for each vCPU."""
