"""The strategies: strategy has their interface, rules what every answer must follow."""
