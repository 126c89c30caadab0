"""The hosts that this process serves: their agents, snapshots, plans and checks."""
