"""The values that pinner works with: frozen, and free of everything but the standard library."""
