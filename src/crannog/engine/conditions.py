"""What is wrong in this process now and since when: kept in memory, so that a look at it never waits."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that does not work, since when, and the error."""

    message: str
    since: float = field(default_factory=time.time)


class Conditions:
    """The conditions of a warehouse in this process, by name. Thread-safe."""

    def __init__(self) -> None:
        self._found: dict[str, Condition] = {}
        self._lock = threading.Lock()

    def note(self, name: str, message: str) -> None:
        """Record that something fails; the first time counts as its beginning."""
        with self._lock:
            before = self._found.get(name)
            self._found[name] = Condition(message) if before is None else Condition(message, before.since)

    def clear(self, name: str) -> None:
        """Record that something works again, or is not there any more."""
        with self._lock:
            self._found.pop(name, None)

    def all(self) -> dict[str, Condition]:
        with self._lock:
            return dict(self._found)
