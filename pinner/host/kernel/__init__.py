"""The kernel's files and calls: processes, affinities, cgroups and events."""
