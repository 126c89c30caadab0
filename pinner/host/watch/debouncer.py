"""A debouncer: it collects values for a short time, so that a burst is processed once. Pure: callers pass the time."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Debouncer(Generic[K, V]):
    """Collects the values of each key and returns them together, ``seconds`` after the first one.

    However long a burst lasts, no value waits longer than ``seconds``.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pending: dict[K, tuple[float, list[V]]] = {}
        """The time at which each key is due, and its values."""

    def add(self, key: K, value: V, now: float) -> None:
        """Collect a value."""
        self._pending.setdefault(key, (now + self._seconds, []))[1].append(value)

    def due(self, now: float) -> list[tuple[K, list[V]]]:
        """Remove and return the keys that are due with their values, in the order in which they were added."""
        keys = [key for key, (due_at, _) in self._pending.items() if due_at <= now]
        return [(key, self._pending.pop(key)[1]) for key in keys]

    def wait(self, now: float, longest: float) -> float:
        """Seconds until the next key is due, ``longest`` where no value is pending."""
        return min((max(due_at - now, 0.0) for due_at, _ in self._pending.values()), default=longest)
