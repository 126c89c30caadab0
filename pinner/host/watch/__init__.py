"""Publishes changes of this host that may move a thread, as events."""
