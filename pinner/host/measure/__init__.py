"""Measures guests: counters every few seconds, pings, and the threads that delay a guest."""
