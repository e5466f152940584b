"""The parts of a server that all requests share."""

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
    """A lake, and what is needed to serve it."""

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
        # The event loops of the API and of OTLP both count here.
        self.requests_lock = threading.Lock()
        self.requests = 0
        self.draining = False
        self._running: dict[object, tuple[str, Callable[[], object]]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def running(self, key: object, owner: str, cancel: Callable[[], object]) -> Iterator[None]:
        """Register, while a query or job runs, its owner and how to cancel it."""
        # Two callers may use one id: the engine refuses the second, whose end must not unregister the first.
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
        """Return the owner of a query or job; None if it is not running."""
        with self._lock:
            entry = self._running.get(key)
        return entry[0] if entry else None

    def cancel_all(self) -> None:
        """Cancel all queries and jobs, when the server stops."""
        with self._lock:
            entries = list(self._running.values())
        for _, cancel in entries:
            with suppress(Exception):
                cancel()
