"""Guests, their pins, and the CPUs that Nova gives them."""
