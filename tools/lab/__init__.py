"""The NUMA lab: virtual machines of any topology, in which pinner is tested on a real kernel with several nodes."""
