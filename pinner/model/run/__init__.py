"""Runs and their records: the journal of changes, the audit trails, and the actors that the trails name."""
