"""Cancels work that runs in another thread, here or in Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from crannog.errors import Cancelled

_INTERRUPT_EVERY_S = 0.2


class Cancellation:
    """Cancels work; may be called from any thread, any number of times."""

    def __init__(self, message: str = "the job was cancelled before it committed; the table is unchanged") -> None:
        self._message = message
        self._lock = threading.Lock()
        self._cancelled = False
        self._interrupt: Callable[[], object] | None = None

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._interrupt is None:
                return
        # Repeatedly, since an interrupt only ends running jobs and the next one may be about to start.
        threading.Thread(target=self._keep_interrupting, name="crannog-cancel", daemon=True).start()

    def _keep_interrupting(self) -> None:
        while (interrupt := self._interrupt) is not None:
            with suppress(Exception):  # Spark may be gone
                interrupt()
            time.sleep(_INTERRUPT_EVERY_S)

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled

    def check(self) -> None:
        if self._cancelled:
            raise Cancelled(self._message)

    @contextmanager
    def interrupting(self, interrupt: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            self._interrupt = interrupt
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._interrupt = None
