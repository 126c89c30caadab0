"""Gives every vCPU a CPU of its own."""
