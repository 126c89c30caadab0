"""A database: its engine, tables, schema and transactions."""
