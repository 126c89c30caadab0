"""What a policy does with plans and with events of guests: which targets it leaves alone or backs off from, how it
releases a guest that migrates, and which events are late."""
