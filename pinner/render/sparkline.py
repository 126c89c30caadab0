"""Sparklines: a series as one line of text."""

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
UNKNOWN = " "


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The values as bars, at most ``width`` of them; the highest bar is the highest value, and 0 the lowest.

    A bar stands for the highest of its values. Where no value of a bar is known, it is a blank.
    """
    parts = min(width, len(values))
    bars = [_highest(values[part * len(values) // parts : (part + 1) * len(values) // parts]) for part in range(parts)]
    top = max((bar for bar in bars if bar is not None), default=0.0)
    return "".join(UNKNOWN if bar is None else BARS[round(bar / top * (len(BARS) - 1)) if top else 0] for bar in bars)


def _highest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
