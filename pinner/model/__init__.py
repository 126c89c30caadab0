"""The values that pinner works with. They are frozen, and import only the standard library."""
