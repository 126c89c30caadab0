"""Settings of the power of CPUs: frequency governors, energy preferences, idle states."""
