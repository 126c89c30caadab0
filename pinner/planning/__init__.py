"""Makes plans, purely: the same snapshot and request always give the same plan. planner is the way in; admission
compares a plan with the agent's own snapshot."""
