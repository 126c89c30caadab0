"""A plan: what a caller asks for, what changes, and the placement that is recorded after an apply."""
