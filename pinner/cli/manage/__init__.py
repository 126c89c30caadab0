"""The program pinner-manage. manage has its commands."""
