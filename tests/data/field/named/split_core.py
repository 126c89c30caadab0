"""nova.conf gives guests CPUs 4-31 and the host keeps 0-3, as if the CPUs of a core were neighbours. They are n and
n + 16: guests run on 16-19, the other halves of the host's four cores.

Right: cpu_shared_set = 4-15,20-31, so that the host has the cores of 0-3.
"""

from dataclasses import replace

from support.hosts import cpus, interleaved, snapshot

HOST = snapshot(interleaved(16), shared=cpus("4-31"))
SPLIT, RIGHT = "0-3,16-19", "4-15,20-31"
WHOLE = replace(HOST, shared=cpus(RIGHT))

DEDICATED = snapshot(interleaved(16), shared=cpus("4-9,20-25"), dedicated=cpus("10-15"))
"""Pinned guests have one half of the cores 10-15, the host the other. Right: nothing to paste where a guest is pinned
there; else the pinned guests' cores go to the host whole, and no CPU of the set is left: nothing to paste, too."""
