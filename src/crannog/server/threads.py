"""Threads for the engine's calls, which block: as many as may wait, by kind, so that one kind never starves another."""

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
    """Runs work in threads. A caller that is cancelled leaves its work to itself."""

    def __init__(self, settings: Settings) -> None:
        self._limit_s = settings.http_request_s
        self._size = settings.http_threads
        # Group commit gains by callers that wait together; the usual forty threads would cap it.
        self._pools = {
            kind: ThreadPoolExecutor(self._size, thread_name_prefix=f"crannog-{kind}") for kind in ("write", "read")
        }
        self._short = dict.fromkeys(self._pools, 0)
        # Long work talks to the event loop while it runs, which anyio's threads can and a pool's cannot.
        self._limiters = {
            # Queries queue in the engine, where they can be counted, cancelled and refused.
            "query": anyio.CapacityLimiter(settings.sql_running + settings.sql_waiting + 1),
            "traces": anyio.CapacityLimiter(settings.sql_running + settings.sql_waiting + 1),
            "rows": anyio.CapacityLimiter(settings.http_threads),
            "job": anyio.CapacityLimiter(_JOBS),
        }

    async def run(self, kind: str, work: Callable[[], T]) -> T:
        """Run a write or a read, and wait for it up to the time that a request has."""
        self._short[kind] += 1
        try:
            async with asyncio.timeout(self._limit_s):
                return await asyncio.get_running_loop().run_in_executor(self._pools[kind], work)
        except TimeoutError:
            again = (
                " It may or may not be kept: send it again with the same Crannog-Batch-Id." if kind == "write" else ""
            )
            raise TimedOut(f"the request took longer than {self._limit_s:g} s.{again}") from None
        finally:
            self._short[kind] -= 1

    async def endless(self, kind: str, work: Callable[[], T]) -> T:
        """Run work that has a limit of its own: a query, rows that are sent as the client takes them, a job."""
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiters[kind])

    def busy(self) -> dict[str, tuple[int, int]]:
        """Return how many threads of each kind work, and how many calls wait for one."""
        short = {kind: (min(count, self._size), max(0, count - self._size)) for kind, count in self._short.items()}
        return short | {
            kind: (limiter.borrowed_tokens, limiter.statistics().tasks_waiting)
            for kind, limiter in self._limiters.items()
        }

    def close(self) -> None:
        """Take no more work; what runs goes on."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
