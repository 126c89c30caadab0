"""How a run works: it compares the plan with the host, changes several guests at once, and notes each change."""
