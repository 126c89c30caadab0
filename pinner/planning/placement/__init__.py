"""The recorded placement of a host, and the drift from it. Events, backoffs and earlier changes say what holds of
it."""
