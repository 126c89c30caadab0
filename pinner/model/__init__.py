"""The values that pinner works with: frozen, and made of the standard library only."""
