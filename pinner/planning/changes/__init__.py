"""What a plan changes: the difference from the host, its order, and the names of its targets."""
