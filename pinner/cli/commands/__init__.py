"""The commands of pinner, one module a noun."""
