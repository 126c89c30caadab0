"""Saves a machine as files without the names of its users, and reads the guests of a saved machine."""
