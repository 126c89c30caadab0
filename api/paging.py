"""Pages of lists that no store keeps: what a host or this process tells at once."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from pinner.model.page import Page

T = TypeVar("T")


def page(items: Iterable[T], key: Callable[[T], str], limit: int, marker: str) -> Page[T]:
    """At most ``limit`` items in the order of their keys, those after the key ``marker``.

    The item that a marker names may be gone by then: the page still begins where it stood.
    """
    rest = sorted((item for item in items if key(item) > marker), key=key)
    shown = tuple(rest[:limit])
    return Page(shown, key(shown[-1]) if len(rest) > limit else "")
