"""Watches this host for changes that may move a thread, and publishes them as events."""
