"""What a policy does with plans and with events of guests."""
