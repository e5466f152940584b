"""The parts of a server that all requests share: threads for the engine, rate limits, and what is running."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

import anyio
import anyio.to_thread

from crannog.embedded import EmbeddedLake
from crannog.errors import Overloaded, TimedOut
from crannog.server.audit import Audit
from crannog.server.auth import Tokens
from crannog.server.build_log import BuildLog
from crannog.server.metrics import Metrics
from crannog.server.requests import Bodies
from crannog.settings import Settings

_MAX_BUCKETS = 10_000


class Rates:
    """A token bucket for each caller, refilled at a steady rate."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str, *, now: float | None = None) -> None:
        """Count a request. Raises Overloaded, with the seconds to wait, if the caller sends too many."""
        if not self._per_s:
            return
        now = time.monotonic() if now is None else now
        left, at = self._buckets.pop(who, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._per_s)
        if left < 1:
            self._buckets[who] = (left, now)
            wait = (1 - left) / self._per_s
            raise Overloaded(
                f"{who} sends more than {self._per_s:g} requests per second; try again in {wait:.3f} s",
                retry_after_s=wait,
            )
        self._buckets[who] = (left - 1, now)
        # The caller that was idle longest has a full bucket by now, or soon.
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)


T = TypeVar("T")
_JOBS = 64


class Threads:
    """Runs blocking calls of the engine: a pool per kind, so that no kind starves another.

    Work goes on if its caller is cancelled.
    """

    def __init__(self, settings: Settings) -> None:
        self._limit_s = settings.http_request_s
        self._size = settings.http_threads
        # Group commit is faster the more callers wait together; the default of forty threads would limit it.
        self._pools = {
            kind: ThreadPoolExecutor(self._size, thread_name_prefix=f"crannog-{kind}") for kind in ("write", "read")
        }
        self._short = dict.fromkeys(self._pools, 0)
        # Long work calls the event loop while it runs, which only anyio's threads can.
        self._limiters = {
            # Queries wait in the engine, where they can be counted, cancelled and refused.
            "query": anyio.CapacityLimiter(settings.sql_running + settings.sql_waiting + 1),
            "traces": anyio.CapacityLimiter(settings.sql_running + settings.sql_waiting + 1),
            "rows": anyio.CapacityLimiter(settings.http_threads),
            "job": anyio.CapacityLimiter(_JOBS),
        }

    async def run(self, kind: str, work: Callable[[], T]) -> T:
        """Run a write or a read. Raises TimedOut after the time limit of a request."""
        self._short[kind] += 1
        try:
            async with asyncio.timeout(self._limit_s):
                return await asyncio.get_running_loop().run_in_executor(self._pools[kind], work)
        except TimeoutError:
            again = (
                " It may have been written or not: send it again with the same Crannog-Batch-Id."
                if kind == "write"
                else ""
            )
            raise TimedOut(f"the request took longer than {self._limit_s:g} s.{again}") from None
        finally:
            self._short[kind] -= 1

    async def endless(self, kind: str, work: Callable[[], T]) -> T:
        """Run work that has its own limits: a query, rows that are streamed, a job."""
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiters[kind])

    def busy(self) -> dict[str, tuple[int, int]]:
        """Return how many threads of each kind are busy, and how many calls wait for one."""
        short = {kind: (min(count, self._size), max(0, count - self._size)) for kind, count in self._short.items()}
        return short | {
            kind: (limiter.borrowed_tokens, limiter.statistics().tasks_waiting)
            for kind, limiter in self._limiters.items()
        }

    def close(self) -> None:
        """Accept no more work; running work continues."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


class Service:
    """A lake, and what is needed to serve it."""

    def __init__(self, lake: EmbeddedLake, *, loopback: bool = True) -> None:
        self.lake = lake
        self.settings = lake.settings
        self.loopback = loopback
        self.tokens = Tokens(lake.operations.warehouse.storage)
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
