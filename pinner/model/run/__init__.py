"""Runs and their records: the journal, the audit trails, and their actors."""
