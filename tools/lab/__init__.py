"""The NUMA lab: virtual machines of any topology, in which pinner is proven on a real multi-node kernel."""
