"""The order of a probe's windows."""

import random

from pinner.model.outcome.outcome import Arm


def schedule(windows: int, seed: int) -> tuple[Arm, ...]:
    """An order of ``windows`` windows of each placement, drawn among all orders alike. The exact test depends on that:
    an order that a person chooses, or that alternates, could follow a rhythm of the load."""
    arms: list[Arm] = ["current"] * windows
    arms += ["planned"] * windows
    random.Random(seed).shuffle(arms)  # noqa: S311 - no secret depends on it
    return tuple(arms)
