"""A snapshot read for one request."""
