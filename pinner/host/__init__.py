"""Reads and changes one machine: inventory takes a snapshot, live is the machine of an apply."""
