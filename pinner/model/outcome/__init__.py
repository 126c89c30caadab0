"""What is measured or found on a host."""
