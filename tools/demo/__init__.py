"""The demo of `make demo`, in the order of a run: steps, what they look at, and guests, load and packets."""
