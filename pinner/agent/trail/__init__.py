"""The agent's audit trail: records, signed heads, and the limit of records about refusals."""
