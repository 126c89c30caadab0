"""The values of settings in a snapshot, and the findings that they cure. model/kinds.py has the table of kinds."""
