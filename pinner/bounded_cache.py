import threading
from typing import Generic, TypeVar

from cachetools import LRUCache

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps the ``size`` values used last. Threads may share it."""

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._values: LRUCache[K, V] = LRUCache(size)

    def get(self, key: K) -> V | None:
        with self._lock:
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
