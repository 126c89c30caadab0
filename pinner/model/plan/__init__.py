"""A plan, and the request for it."""
