"""The strategies. strategy has their interface, and rules what every answer must follow."""
