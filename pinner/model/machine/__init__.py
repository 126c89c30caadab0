"""The hardware of a host: CPUs, NUMA nodes, interrupts; and its processes."""
