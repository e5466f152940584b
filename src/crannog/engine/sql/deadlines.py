"""Deadlines of queries: one thread watches them all and sleeps until the next one.

A thread per query would cost a short query a tenth of its time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

_IDLE_S = 30.0


class Deadlines:
    """Calls functions at their deadlines. Thread-safe; the watching thread ends after a while without deadlines."""

    def __init__(self) -> None:
        self._due: dict[int, tuple[float, Callable[[], None]]] = {}
        self._changed = threading.Condition()
        self._wakes_at = math.inf
        self._is_watched = False
        self._count = 0

    def add(self, seconds: float, act: Callable[[], None]) -> int:
        """Call `act` after `seconds`, in another thread, unless the returned number is removed first."""
        at = time.monotonic() + seconds
        with self._changed:
            self._count += 1
            self._due[self._count] = (at, act)
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, name="crannog-deadlines", daemon=True).start()
            elif at < self._wakes_at:
                self._changed.notify()
            return self._count

    def remove(self, number: int) -> None:
        """Remove a deadline, if it has not passed."""
        with self._changed:
            self._due.pop(number, None)

    def _watch(self) -> None:
        while True:
            with self._changed:
                late = self._late()
                if not late:
                    idle = not self._due
                    self._wakes_at = min((at for at, _ in self._due.values()), default=time.monotonic() + _IDLE_S)
                    self._changed.wait(self._wakes_at - time.monotonic())
                    late = self._late()
                    if idle and not self._due and not late:
                        self._is_watched = False
                        return
            for act in late:
                act()

    def _late(self) -> list[Callable[[], None]]:
        now = time.monotonic()
        numbers = [number for number, (at, _) in self._due.items() if at <= now]
        return [self._due.pop(number)[1] for number in numbers]
