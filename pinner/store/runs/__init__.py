"""Runs, their entries, and what follows from them: outcomes, probes and the recorded placement."""
