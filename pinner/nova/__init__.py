"""pinner beside Nova: a listener for notifications, hooks for old clouds, and a weigher for the scheduler."""
