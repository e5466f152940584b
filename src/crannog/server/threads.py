"""Threads for blocking calls of the engine: a pool per kind, so that no kind starves another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import anyio
import anyio.to_thread

from crannog.errors import TimedOut
from crannog.settings import Settings

T = TypeVar("T")
_JOBS = 64


class Threads:
    """Runs work in threads. Work goes on if its caller is cancelled."""

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
