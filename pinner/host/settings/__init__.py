"""Reads and sets the settings that a plan may change, one module a kind. states finds the module of a kind."""
