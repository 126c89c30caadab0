"""The hardware of a machine from /sys: CPUs, caches, NUMA nodes and devices."""
