"""What runs bring about: measures before and after a run, watches that may undo it, and probes."""
