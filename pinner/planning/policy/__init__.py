"""What a policy does with plans: it leaves targets out, releases guests, and proposes re-packs."""
