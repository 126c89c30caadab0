"""The commands that look at a host and at its guests."""
