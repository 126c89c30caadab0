"""The local agent with the real executor and journal, over a host that is a dictionary (support.hosts says why)."""
