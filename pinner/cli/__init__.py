"""The programs pinner and pinner-manage."""
