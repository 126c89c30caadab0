"""The policy of a host, the events that it answers, the drift from its placement, and backoffs."""
