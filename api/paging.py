"""Pages of lists that pinner reads as a whole for each request, and the link to the next page."""

from collections.abc import Callable, Iterable
from typing import TypeVar
from urllib.parse import urlencode

from flask import request

from pinner.model.page import Page

T = TypeVar("T")
PageAnswer = tuple[Page[T], int, dict[str, str]]
"""A page, its status, and its header fields."""


def page(items: Iterable[T], key: Callable[[T], str], limit: int, marker: str) -> Page[T]:
    """The first ``limit`` items after the key ``marker``, by key.

    No item needs to have the marker: the item may have ended since the previous page.
    """
    rest = sorted((item for item in items if key(item) > marker), key=key)
    shown = tuple(rest[:limit])
    return Page(shown, key(shown[-1]) if len(rest) > limit else "")


def linked(found: Page[T]) -> PageAnswer[T]:
    """The answer with a page: its header field Link (RFC 8288) is the URL of the next page."""
    if not found.next:
        return found, 200, {}
    query = urlencode(request.args.to_dict() | {"marker": found.next})
    return found, 200, {"Link": f'<{request.path}?{query}>; rel="next"'}
