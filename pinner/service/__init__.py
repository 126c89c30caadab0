"""The use cases of pinner."""
