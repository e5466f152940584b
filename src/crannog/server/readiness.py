"""Whether the storage answers: looked at in a thread of its own, so that a storage that hangs makes nobody else wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from crannog.errors import CrannogError

_FRESH_S = 1.0
_WAIT_S = 1.0


class StorageProbe:
    """Knows what the storage said last, and looks again at most once a second, never twice at once."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._failure: str | None = None
        self._answered_at = float("-inf")
        self._pending: Future[None] | None = None

    async def failure(self) -> str | None:
        """Return why the storage cannot be used, within a second; None if it can."""
        if time.monotonic() - self._answered_at < _FRESH_S:
            return self._failure
        pending = self._pending
        if pending is None:
            pending = self._pending = Future()
            # Not one of the threads for requests: those may all wait for the storage.
            threading.Thread(target=self._run, args=(pending,), name="crannog-readiness", daemon=True).start()
        try:
            async with asyncio.timeout(_WAIT_S):
                await asyncio.shield(asyncio.wrap_future(pending))
        except TimeoutError:
            return f"the storage did not answer within {_WAIT_S:g} s"
        return self._failure

    def _run(self, pending: Future[None]) -> None:
        try:
            self._look()
            self._failure = None
        except CrannogError as error:
            self._failure = error.message
        except Exception as error:
            self._failure = f"the storage failed: {type(error).__name__}"
        self._answered_at = time.monotonic()
        self._pending = None
        pending.set_result(None)
