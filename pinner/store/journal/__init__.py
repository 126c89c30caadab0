"""The agent's journal: the record of every change made to this host, so that undo needs no server."""
