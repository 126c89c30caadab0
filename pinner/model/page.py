"""Part of a list, and the limits of its length."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

DEFAULT_LIMIT = 50
MAX_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list, newest first; ``next`` is the marker of the page after it, empty on the last."""

    items: tuple[T, ...]
    next: str
