"""Logs that store nothing themselves: a tee, which writes to several logs, one that only prints, and a best-effort log.

The best-effort log never fails or delays the build that writes to it: events go into a bounded queue, and a background
thread opens the store and writes them. Events that cannot be stored are counted and logged; no error is raised.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import cast

from crannog.api.operations import Operation, Q, R
from crannog.builds.append_plan import checked_batch
from crannog.builds.events import BuildEvent
from crannog.builds.log import EventLog
from crannog.builds.requests import HEAD, Head
from crannog.errors import CrannogError, Refused, Unavailable


class ForwardingLog(EventLog):
    """Forwards reads to `target()`; subclasses define appends."""

    @abstractmethod
    def target(self) -> EventLog:
        """Return the log to read from."""

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        return self.target().call(operation, request)

    def remove_events(self, indexes: Iterable[int]) -> int:
        return self.target().remove_events(indexes)


class TeeLog(ForwardingLog):
    """Writes to several logs. Indexes and reads are those of the first; the others assign indexes of their own.

    Events are removed from the first log only: prune the copies by their own URIs.
    """

    def __init__(self, logs: Sequence[EventLog]) -> None:
        self.logs = tuple(logs)
        self.uri = "tee:" + ",".join(log.uri.replace(",", "%2C") for log in self.logs)

    def target(self) -> EventLog:
        return self.logs[0]

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        """Append to all logs. Raises Unavailable if a copy fails: the first log has the batch then, and a retry is safe."""
        batch = checked_batch(events)
        indexes = self.logs[0].append_events(batch, check_states=check_states)
        failures = []
        for log in self.logs[1:]:
            try:
                log.append_events(batch, check_states=check_states)
            except CrannogError as error:
                failures.append(f"{log.uri}: {error.message}")
        if failures:
            raise Unavailable(
                f"{self.logs[0].uri} stored the batch, but not every copy did ({'; '.join(failures)}); sending it again is safe"
            )
        return indexes

    def close(self) -> None:
        for log in self.logs:
            log.close()


_QUEUE = 10_000
_GROUP = 500
_MAX_ATTEMPTS = 3
_PAUSE_S = 0.5
_STORES_NOTHING = "the log stdout: stores nothing, so it cannot be read; use tee: to print and store"
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


class StdoutLog(EventLog):
    """Stores nothing: reads are refused, an event sent twice is printed twice, indexes count from 1 in each process.

    There is no earlier status to check a change against, so `check_states` has no effect.
    """

    uri = "stdout:"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def append_events(self, events: Iterable[BuildEvent], *, check_states: bool | None = None) -> list[int]:
        batch = checked_batch(events)
        with self._lock:
            lines = [event.at(self._last + place).as_json() for place, event in enumerate(batch, 1)]
            try:
                # One write, so that lines of other threads cannot come between.
                sys.stdout.write("".join(f"{line}\n" for line in lines))
                sys.stdout.flush()
            except (OSError, ValueError) as error:
                raise Unavailable(f"cannot print events: {error}") from error
            first = self._last + 1
            self._last += len(batch)
            return list(range(first, self._last + 1))

    def call(self, operation: Operation[Q, R], request: Q) -> R:
        if operation is HEAD:
            return cast(R, Head(self._last))
        raise Refused(_STORES_NOTHING)

    def remove_events(self, indexes: Iterable[int]) -> int:
        raise Refused(_STORES_NOTHING)

    def close(self) -> None:
        """Leave standard output open."""
