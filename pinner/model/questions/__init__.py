"""Questions that change nothing, and their answers: the room for more guests, and what would be if."""
