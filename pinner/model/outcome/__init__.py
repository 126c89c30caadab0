"""What is measured or found on a host: measures, outcomes of runs, probes, checks, and who delays a guest."""
