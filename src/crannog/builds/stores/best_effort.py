"""A log that never fails or delays the build that writes to it.

Events go into a bounded queue; a background thread opens the store and writes them. Events that cannot be stored are
counted and logged; no error is raised.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from itertools import groupby

from crannog.builds.events import BuildEvent
from crannog.builds.log import EventLog
from crannog.builds.stores.forwarding_log import ForwardingLog
from crannog.errors import CrannogError

_QUEUE = 10_000
_GROUP = 500
_MAX_ATTEMPTS = 3
_PAUSE_S = 0.5
_logger = logging.getLogger("crannog.builds")


class BestEffortLog(ForwardingLog):
    """Appends return at once, with index 0 for "not known yet". Reads are forwarded to the underlying log."""

    def __init__(self, uri: str, opener: Callable[[], EventLog], *, queue_events: int = _QUEUE) -> None:
        self.uri = uri
        self.kept = 0
        self.dropped = 0
        self.last_error: str | None = None
        self._opener = opener
        self._log: EventLog | None = None
        self._open_lock = threading.Lock()
        self._waiting: queue.Queue[tuple[BuildEvent, bool | None] | None] = queue.Queue(queue_events)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="crannog-best-effort", daemon=True)
        self._thread.start()

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        """Queue events; never raises and never waits. All indexes are 0. Events that do not fit the queue are dropped and counted."""
        try:
            batch = list(events)
        except Exception as error:
            self._lost(1, f"the batch cannot be read: {error}")
            return [0]
        for event in batch:
            if self._closing.is_set() or not isinstance(event, BuildEvent):
                self._lost(
                    1, "the log is closed" if self._closing.is_set() else f"{type(event).__name__} is not an event"
                )
                continue
            try:
                self._waiting.put_nowait((event, check_states))
            except queue.Full:
                self._lost(1, "the queue is full")
        return [0] * len(batch)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all queued events are stored or dropped; False if that takes longer."""
        ends = time.monotonic() + timeout_s
        while self._waiting.unfinished_tasks:
            if time.monotonic() > ends:
                return False
            time.sleep(0.005)
        return True

    def close(self, timeout_s: float = 10.0) -> None:
        """Flush within a time limit and close; never raises."""
        self._closing.set()
        self.flush(timeout_s)
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            pass
        self._thread.join(timeout_s)
        if self._log is not None and not self._thread.is_alive():
            try:
                self._log.close()
            except Exception:
                _logger.warning("closing %s failed", self.uri, exc_info=True)

    def target(self) -> EventLog:
        """Return the underlying log once all queued events are stored."""
        self.flush()
        return self._opened()

    def _opened(self) -> EventLog:
        with self._open_lock:
            if self._log is None:
                self._log = self._opener()
            return self._log

    def _work(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch = [first]
            while len(batch) < _GROUP and not self._waiting.empty():
                more = self._waiting.get_nowait()
                if more is None:
                    self._waiting.put_nowait(None)
                    self._waiting.task_done()
                    break
                batch.append(more)
            for check_states, group in groupby(batch, key=lambda item: item[1]):
                self._keep([event for event, _ in group], check_states)
            for _ in batch:
                self._waiting.task_done()
        self._waiting.task_done()

    def _keep(self, batch: list[BuildEvent], check_states: bool | None) -> None:
        for attempt in range(_MAX_ATTEMPTS):
            try:
                self._opened().append_events(batch, check_states=check_states)
                self.kept += len(batch)
                return
            except CrannogError as error:
                if len(batch) > 1 and not error.retryable:
                    for event in batch:  # one wrong event must not cost the others
                        self._keep([event], check_states)
                    return
                if not error.retryable or attempt == _MAX_ATTEMPTS - 1:
                    self._lost(len(batch), error.message)
                    return
            except Exception as error:
                self._lost(len(batch), f"{type(error).__name__}: {error}")
                return
            self._closing.wait(_PAUSE_S)

    def _lost(self, count: int, why: str) -> None:
        self.dropped += count
        self.last_error = why
        _logger.warning("%s: %d build events were dropped: %s", self.uri, count, why)
