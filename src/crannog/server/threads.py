"""Threads for the engine's calls, which block: as many as may wait, by kind, so that one kind never starves another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

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
        # Group commit gains by callers that wait together; anyio's own forty threads would cap it.
        self._limiters = {
            "write": anyio.CapacityLimiter(settings.http_threads),
            "read": anyio.CapacityLimiter(settings.http_threads),
            # Queries queue in the engine, where they can be counted, cancelled and refused.
            "query": anyio.CapacityLimiter(settings.sql_running + settings.sql_waiting + 1),
            "job": anyio.CapacityLimiter(_JOBS),
        }

    async def run(self, kind: str, work: Callable[[], T]) -> T:
        """Run a write or a read, and wait for it up to the time that a request has."""
        try:
            async with asyncio.timeout(self._limit_s):
                return await self.endless(kind, work)
        except TimeoutError:
            again = " It may or may not be kept: send it again with the same Crannog-Batch-Id." if kind == "write" else ""
            raise TimedOut(f"the request took longer than {self._limit_s:g} s.{again}") from None

    async def endless(self, kind: str, work: Callable[[], T]) -> T:
        """Run work that has a limit of its own."""
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiters[kind])

    def busy(self) -> dict[str, Any]:
        """Return how many threads of each kind work, and how many calls wait for one."""
        return {kind: (limiter.borrowed_tokens, limiter.statistics().tasks_waiting) for kind, limiter in self._limiters.items()}
