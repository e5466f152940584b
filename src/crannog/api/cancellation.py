"""Taking work back while it runs in another thread, here or in Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from crannog.errors import Cancelled

_INTERRUPT_EVERY_S = 0.2


class Cancellation:
    """Takes work back; safe to call from another thread, any number of times."""

    def __init__(self, said: str = "the job was cancelled before it committed; the table is as it was") -> None:
        self._said = said
        self._lock = threading.Lock()
        self._asked = False
        self._interrupt: Callable[[], object] | None = None

    def cancel(self) -> None:
        with self._lock:
            self._asked = True
            if self._interrupt is None:
                return
        # Again and again: only jobs that run are ended, and the next one may be about to start.
        threading.Thread(target=self._keep_interrupting, name="crannog-cancel", daemon=True).start()

    def _keep_interrupting(self) -> None:
        while (interrupt := self._interrupt) is not None:
            with suppress(Exception):  # Spark may be gone
                interrupt()
            time.sleep(_INTERRUPT_EVERY_S)

    @property
    def is_cancelled(self) -> bool:
        return self._asked

    def check(self) -> None:
        if self._asked:
            raise Cancelled(self._said)

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
