"""Reads and changes one machine. inventory takes a snapshot of it, and live is this machine for an apply."""
