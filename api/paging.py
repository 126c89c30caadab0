"""Pages of lists that are not stored: pinner reads the whole list for each request."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from pinner.model.page import Page

T = TypeVar("T")


def page(items: Iterable[T], key: Callable[[T], str], limit: int, marker: str) -> Page[T]:
    """The first ``limit`` items after the key ``marker``, in the order of their keys.

    No item needs to have the key ``marker``: the item may have ended since the previous page.
    """
    rest = sorted((item for item in items if key(item) > marker), key=key)
    shown = tuple(rest[:limit])
    return Page(shown, key(shown[-1]) if len(rest) > limit else "")
