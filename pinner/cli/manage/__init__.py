"""The program pinner-manage."""
