"""The parts of a server that all requests share: threads for the engine, rate limits, the build log."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import anyio
import anyio.to_thread

from crannog.builds.log import EventLog
from crannog.builds.open_log import open_log, other_than_warehouse
from crannog.embedded import EmbeddedLake
from crannog.errors import CallerError, Overloaded, TimedOut, TooLarge
from crannog.server.audit import Audit
from crannog.server.auth import Tokens
from crannog.server.connections import Connections
from crannog.server.metrics import Metrics
from crannog.server.readiness import StorageProbe
from crannog.server.requests import Bodies
from crannog.server.running_work import RunningWork
from crannog.server.sessions import Sessions
from crannog.settings import Settings

_MAX_BUCKETS = 10_000
# Of the rate of a caller, the part that an address has for requests without a valid token: those do no work for anybody.
_STRANGERS_SHARE = 10


class Rates:
    """A token bucket for each caller, refilled at a steady rate. Safe for threads."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, who: str, *, what: str = "requests", now: float | None = None) -> None:
        """Count a request. Raises Overloaded, with the seconds to wait, if the caller sends too many."""
        if self._per_s:
            with self._lock:
                self._take(who, what, time.monotonic() if now is None else now)

    def _take(self, who: str, what: str, now: float) -> None:
        left, at = self._buckets.pop(who, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._per_s)
        if left < 1:
            self._buckets[who] = (left, now)
            wait = (1 - left) / self._per_s
            raise Overloaded(
                f"{who} sends more than {self._per_s:g} {what} per second; try again in {wait:.3f} s",
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
        self.sessions = Sessions(self.tokens)
        self.threads = Threads(self.settings)
        self.work = RunningWork()
        self.connections = Connections(self.settings)
        self.bodies = Bodies(self.settings, self.threads)
        self.storage_probe = StorageProbe(lambda: lake.operations.warehouse.storage.names("_crannog"))
        self.rates = Rates(self.settings.rate_per_s, self.settings.rate_burst)
        self.refusals = Rates(
            self.settings.rate_per_s / _STRANGERS_SHARE, max(1, self.settings.rate_burst // _STRANGERS_SHARE)
        )
        self.audit = Audit(lake)
        self.build_log = BuildLog(lake, self.settings.build_log)
        self.metrics = Metrics(self)
        # The event loops of the API and of OTLP both count here.
        self.requests_lock = threading.Lock()
        self.requests = 0
        self.listeners = 0  # to changes; only the event loop of the API counts them
        self.draining = False
        self.otlp_ports: tuple[int, int] | None = None
        """Where spans are taken, over HTTP and over gRPC; None if this server takes none."""


_CACHED_STATES = 2
_MAX_STATE_EVENTS = 500_000


class BuildLog:
    """The log at `uri`; if that is empty or the URI of the warehouse's log, `lake.builds`. Safe for threads."""

    def __init__(self, lake: EmbeddedLake, uri: str) -> None:
        self._lake = lake
        self._uri = other_than_warehouse(uri, lake.operations.warehouse.location)
        self._lock = threading.Lock()
        self._other: EventLog | None = None
        self._states: OrderedDict[tuple[int, int], EventLog] = OrderedDict()
        self._states_lock = threading.Lock()

    def get(self) -> EventLog:
        """Return the log."""
        if not self._uri:
            return self._lake.builds
        with self._lock:
            if self._other is None:
                if self._uri.startswith(("http:", "https:")):
                    raise CallerError(
                        f"this server has no build log: CRANNOG_BUILD_LOG is {self._uri}; use that server"
                    )
                self._other = open_log(self._uri)
            return self._other

    def as_of(self, index: int | None) -> EventLog:
        """Return the log as of an index, or the present log without one. Raises TooLarge if that has too many events.

        The two states used last are cached, since a client usually sends several queries about the same state.
        """
        if index is None:
            return self.get()
        if index > _MAX_STATE_EVENTS:
            raise TooLarge(
                f"the log as of index {index:,} has more than the {_MAX_STATE_EVENTS:,} events that a server holds in memory;"
                " open the log itself and use its as_of, or read the events of a time range"
            )
        log = self.get()
        with self._states_lock:  # one state is built at a time
            head = log.head()
            # Events removed since are missing from earlier states, too.
            removed = head - log.stats().events
            state = self._states.pop((index, removed), None) or log.as_of(index)
            if index <= head:  # a state beyond the head still changes
                self._states = OrderedDict((key, kept) for key, kept in self._states.items() if key[1] == removed)
                self._states[index, removed] = state
                if len(self._states) > _CACHED_STATES:
                    self._states.popitem(last=False)  # not closed: other requests may be reading it
            return state

    def close(self) -> None:
        """Close a log that was opened here; that of the warehouse is closed with the lake."""
        with self._lock:
            if self._other is not None:
                self._other.close()
                self._other = None
        with self._states_lock:
            self._states.clear()
