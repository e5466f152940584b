"""What all requests share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from crannog.embedded import EmbeddedLake
from crannog.server.audit import Audit
from crannog.server.auth.tokens import Tokens
from crannog.server.bodies import Bodies
from crannog.server.build_log import BuildLog
from crannog.server.metrics import Metrics
from crannog.server.rate_limits import Rates
from crannog.server.threads import Threads


class Service:
    """A lake, and what it takes to serve it to many."""

    def __init__(self, lake: EmbeddedLake, *, loopback: bool = True) -> None:
        self.lake = lake
        self.settings = lake.settings
        self.loopback = loopback
        self.tokens = Tokens(lake.warehouse.storage)
        self.threads = Threads(self.settings)
        self.bodies = Bodies(self.settings, self.threads)
        self.rates = Rates(self.settings.rate_per_s, self.settings.rate_burst)
        self.audit = Audit(lake)
        self.build_log = BuildLog(lake, self.settings.build_log)
        self.metrics = Metrics(self)
        self.requests = 0
        self.draining = False
        self._running: dict[object, tuple[str, Callable[[], object]]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def running(self, key: object, owner: str, cancel: Callable[[], object]) -> Iterator[None]:
        """Keep in mind, while something long runs, whose it is and how it is taken back."""
        # Two callers may give one id: the engine refuses the second, whose leaving must not hide the first.
        entry = (owner, cancel)
        with self._lock:
            self._running.setdefault(key, entry)
        try:
            yield
        finally:
            with self._lock:
                if self._running.get(key) is entry:
                    del self._running[key]

    def owner(self, key: object) -> str | None:
        """Return whose long work this is; None if it does not run."""
        with self._lock:
            entry = self._running.get(key)
        return entry[0] if entry else None

    def cancel_all(self) -> None:
        """Take back all that is long, at the end of a server's life."""
        with self._lock:
            entries = list(self._running.values())
        for _, cancel in entries:
            with suppress(Exception):
                cancel()
