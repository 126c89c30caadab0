"""Settings inside guests, through their agents."""
