"""What runs bring about: measures before and after a run, its watch, and probes."""
