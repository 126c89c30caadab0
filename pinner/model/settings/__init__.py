"""The settings of a host and of its guests that a plan may change, one module a kind."""
