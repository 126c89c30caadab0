"""Sends events to pinner servers, and asks them for the room of their hosts."""
