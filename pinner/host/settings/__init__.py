"""Reads and sets states, one module a kind with its ROW (row.py). table.py finds the row of a kind."""
