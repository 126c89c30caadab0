"""The hardware of a host: CPUs, NUMA nodes, interrupts, frequencies, and the parts that read them."""
