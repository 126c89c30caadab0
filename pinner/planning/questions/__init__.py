"""Answers that change nothing: how many guests fit, why a guest has its CPUs, and what would be if."""
