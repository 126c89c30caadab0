"""Which CPUs and memory a plan may use, for each role and each guest."""
