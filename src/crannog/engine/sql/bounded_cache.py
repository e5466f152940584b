"""A cache that is bounded in bytes: of what statements are parsed and compiled to, the most recently used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps the values used last, up to a number of bytes together. Thread-safe."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value of about `size` bytes; one that would take more than a quarter of the cache is not kept."""
        if size > self._limit // 4:
            return
        with self._lock:
            self.bytes += size - self._values.pop(key, (value, 0))[1]
            self._values[key] = (value, size)
            while self.bytes > self._limit:
                self.bytes -= self._values.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._values)
