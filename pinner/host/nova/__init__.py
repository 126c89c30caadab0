"""Nova's configuration on this host, as nova-compute reads it."""
