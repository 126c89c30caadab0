"""Parts of lists, and the limits of their length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
SortDirection = Literal["asc", "desc"]
"""Of time: oldest or newest first."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    limit: int = DEFAULT_LIMIT
    """1 to MAX_LIMIT."""
    marker: str = ""
    """``next`` of the previous page; empty for the first page."""
    direction: SortDirection = "desc"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list."""

    items: tuple[T, ...]
    next: str
    """Marker of the next page; empty on the last one."""


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
