"""The audit trails of the centre and of the agent: records that are only appended."""
