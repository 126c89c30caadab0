"""Plans, changes and measures for people, safe on a terminal and in a log."""

from pinner.model.text import before_and_after, counted

__all__ = ["before_and_after", "counted", "visible"]


def visible(text: str) -> str:
    r"""The text with everything unprintable (line ends, terminal escapes, direction marks) as \x1b, \n, \u202e.

    Guests and processes choose their names, so a name may contain any character."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
