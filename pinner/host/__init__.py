"""Reads and changes one machine. inventory takes a snapshot; live is this machine for an apply."""
