"""The settings of a host as changes of a plan, one module a kind. remedies has all kinds."""
