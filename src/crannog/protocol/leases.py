"""Leases: small files with a heartbeat that show that a process is at work.

Correctness never depends on them. A reader's lease keeps vacuum from files it still reads; a job's lease keeps
the cleaner from files not committed yet; a task's lease saves two processes from doing the same work.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from crannog.errors import CrannogError
from crannog.storage.interface import Storage

HEARTBEAT_S = 5.0
# Several heartbeats may fail, or the machine may be slow, before a lease counts as dead.
DEAD_AFTER_S = 60.0
# A time further in the future was written before the clock was set back: it is ignored.
CLOCK_SKEW_S = 60.0


class Lease:
    """A lease as a context manager. A daemon thread sends its heartbeat until it is released."""

    def __init__(self, storage: Storage, path: str, content: Mapping[str, Any]) -> None:
        self._storage = storage
        self.path = path
        self._content = json.dumps(dict(content)).encode()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._heartbeat, name=f"lease {path[-40:]}", daemon=True)

    def __enter__(self) -> Lease:
        self._storage.replace(self.path, self._content)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=HEARTBEAT_S)
        with suppress(CrannogError):
            self._storage.delete([self.path])

    def _heartbeat(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            # A missed heartbeat must not fail the work: the lease only saves others from doing it twice.
            with suppress(CrannogError, FileNotFoundError):
                self._storage.touch(self.path)


def is_live(last_heartbeat: float, now: float, dead_after_s: float) -> bool:
    """Tell whether a heartbeat is recent. One from the future is not: its holder would have sent another by now."""
    return -CLOCK_SKEW_S <= now - last_heartbeat < dead_after_s


def live_leases(storage: Storage, folder: str, *, dead_after_s: float = DEAD_AFTER_S) -> Iterator[dict[str, Any]]:
    """Yield the content of every lease in `folder` with a recent heartbeat."""
    now = storage.now()
    for file in storage.walk(folder):
        if file.path.endswith(".json") and is_live(file.modified, now, dead_after_s):
            with suppress(FileNotFoundError, ValueError):
                yield json.loads(storage.read(file.path))
