"""Reads and sets states, one module a kind with its ROW (row.py). states.py finds the row of a kind."""
