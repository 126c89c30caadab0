"""Nova's notifications: received from the message broker, checked, parsed, or put into quarantine."""
