"""The central database, whose repositories are in repositories.py, and journal/, the agent's record of every change."""
