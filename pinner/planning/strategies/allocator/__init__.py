"""Gives every vCPU a CPU of its own, and finds the node and the free CPUs for it."""
