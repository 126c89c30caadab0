"""The kinds with a state in plans, one module a kind with its ROW (row.py); table.py finds them."""
