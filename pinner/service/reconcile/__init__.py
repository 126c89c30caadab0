"""Keeps the policies of hosts: finds drift, and reports it, proposes a plan or applies it."""
