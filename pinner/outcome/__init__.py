"""The statistics of a plan's outcome: pure functions of windows. The window is the unit, never the sample."""
