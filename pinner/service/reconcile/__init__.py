"""Keeps the policies of hosts: reports drift, proposes a plan, or applies it."""
