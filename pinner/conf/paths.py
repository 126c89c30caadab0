ABSOLUTE_PATH = "^(/|$)"
"""The pattern of an option that is an absolute path, or empty: each process may have another working folder."""
