"""The central database (its front is repositories.py), and journal/, the agent's record of every change."""
