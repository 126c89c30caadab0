"""Who sends a request, and whether the caller may do what it asks."""
