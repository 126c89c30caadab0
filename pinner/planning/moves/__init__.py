"""Guests that move because of new guests, and estimates of what a move gains."""
