"""Checks, exports and compares the audit trails."""
