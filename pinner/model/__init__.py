"""The values that pinner works with: frozen, and made of the standard library only. A snapshot is the state of a host;
a change is what a plan does to a target."""
