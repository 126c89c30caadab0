"""What a server does by itself: it checks its parts, and deletes what is too old."""
