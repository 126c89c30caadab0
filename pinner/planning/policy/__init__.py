"""What a policy does with plans and with events of guests: it leaves targets out, releases guests, and proposes
re-packs."""
