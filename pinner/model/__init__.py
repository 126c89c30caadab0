"""The values that pinner works with. They are frozen, and import only the standard library. A snapshot is the state
of a host, and a change is what a plan does to a target."""
