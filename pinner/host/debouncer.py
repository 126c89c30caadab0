"""Things that come in bursts, held back until their burst is over. Pure: the caller tells the time."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Debouncer(Generic[K, V]):
    """Gives out what came for a key at once, ``seconds`` after the first of it: however long a burst lasts, nothing is
    late by more than that."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: dict[K, tuple[float, list[V]]] = {}

    def add(self, key: K, value: V, now: float) -> None:
        """Something came."""
        self._held.setdefault(key, (now + self._seconds, []))[1].append(value)

    def due(self, now: float) -> list[tuple[K, list[V]]]:
        """What has been held long enough, in the order in which it came; it is held no more."""
        over = [key for key, (until, _) in self._held.items() if until <= now]
        return [(key, self._held.pop(key)[1]) for key in over]

    def wait(self, now: float, longest: float) -> float:
        """Seconds until the next is due, ``longest`` where nothing is held."""
        return min((max(until - now, 0.0) for until, _ in self._held.values()), default=longest)
