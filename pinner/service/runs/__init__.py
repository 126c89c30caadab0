"""Starts, follows and records runs, and copies them from the agents' journals."""
