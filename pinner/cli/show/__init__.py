"""Pictures and tables of hosts, plans and probes."""
