"""What is measured or found on a host: measures, outcomes of runs, probes and checks."""
