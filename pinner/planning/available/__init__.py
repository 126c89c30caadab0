"""Which CPUs and which memory of a host a plan may use, for each role and each guest."""
