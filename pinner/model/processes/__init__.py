"""Processes and threads: their load, their descendants, and the programs that delay or move others."""
