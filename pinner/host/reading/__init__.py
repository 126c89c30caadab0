"""Reads the counters and settings that the checks compare, of this host or of a captured machine."""
