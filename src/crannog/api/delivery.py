"""How the rows of a producer are sent until they are stored: what is retried, split or given up.

Rows that wait in memory are sent when the process ends, and discarded in a forked child.
"""

from __future__ import annotations

import atexit
import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from crannog.api.arguments import new_batch_id
from crannog.api.reports import WriteReceipt
from crannog.errors import BadRows, CrannogError, Overloaded, SchemaMismatch, TimedOut, TooLarge, Unavailable

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0

Rows = list[dict[str, Any]]


class Step(Enum):
    """What to do with rows that were not acknowledged."""

    AGAIN = "again"
    SPLIT = "split"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows that were not stored, or may not have been, and the error."""

    rows: tuple[dict[str, Any], ...]
    error: Exception


def next_step(error: Exception, rows: int, *, unsure: bool) -> Step:
    """Choose by the error and the number of rows; `unsure` means that an earlier try may have stored them.

    A batch is stored as a whole or not at all, so a refused batch may be split into new batches. A batch that may have
    been stored must not be split: its halves would have new ids and duplicate rows.
    """
    if isinstance(error, (BadRows, SchemaMismatch)):
        return Step.SPLIT if rows > 1 else Step.FAIL
    too_many = isinstance(error, TooLarge) or (isinstance(error, Overloaded) and error.retry_after_s is None)
    if too_many and rows > 1 and not unsure:
        return Step.SPLIT
    if isinstance(error, TimedOut) or (isinstance(error, CrannogError) and error.retryable):
        return Step.AGAIN
    return Step.FAIL


class Patience(Protocol):
    """Decides how long a sender may retry."""

    def pause(self, seconds: float, failing_since: float) -> bool:
        """Wait before the next try; False to give up instead."""


class Delivery:
    """Sends batches in order, each until it is stored, reduced to its bad rows, or given up."""

    def __init__(
        self,
        append: Callable[[Rows, str], WriteReceipt],
        patience: Patience,
        *,
        stored: Callable[[int], None],
        failed: Callable[[Failure], None],
        tried_again: Callable[[], None],
    ) -> None:
        self._append = append
        self._patience = patience
        self._stored, self._failed, self._tried_again = stored, failed, tried_again

    def send(self, rows: Rows) -> None:
        """Return when each row is stored or reported; never raises."""
        parts = [rows]
        while parts:
            part = parts.pop()
            step, error = self._tried(part)
            if error is None:
                self._stored(len(part))
            elif step is Step.SPLIT:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]  # the first half is next
            else:
                self._failed(Failure(tuple(part), error))

    def _tried(self, rows: Rows) -> tuple[Step, Exception | None]:
        """Send rows until they are stored, or a retry cannot help; then return what to do instead, and the error."""
        batch_id, pause, since, unsure = new_batch_id(), _FIRST_PAUSE_S, time.monotonic(), False
        while True:
            try:
                self._append(rows, batch_id)
                return Step.AGAIN, None
            except Exception as error:  # any error is reported with the rows
                step = next_step(error, len(rows), unsure=unsure)
                wait_s = max(pause * random.uniform(0.5, 1.0), getattr(error, "retry_after_s", None) or 0.0)
                if step is not Step.AGAIN:
                    return step, error
                if not self._patience.pause(wait_s, since):
                    return Step.FAIL, error
                unsure = unsure or isinstance(error, (Unavailable, TimedOut))
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            self._tried_again()


_EXIT_S = 10.0
_FORK_S = 10.0


class Waiting(Protocol):
    """An object that holds unsent work of this process."""

    sending: threading.Lock
    """Held while sending; a fork waits for it, so that the child does not inherit locks that are taken."""

    def close(self, timeout: float) -> None:
        """Send what is waiting, and close."""

    def start_empty(self) -> None:
        """Discard everything, in a forked child: the parent sends what is waiting."""


_waiting: weakref.WeakSet[Waiting] = weakref.WeakSet()
_held: list[threading.Lock] = []


def look_after(work: Waiting) -> None:
    """Drain the object when the process ends, and empty it in a forked child."""
    _waiting.add(work)


def leave(work: Waiting) -> None:
    """Stop tracking an object that was closed."""
    _waiting.discard(work)


@atexit.register
def _drain() -> None:
    until = time.monotonic() + _EXIT_S
    for work in list(_waiting):
        work.close(max(0.0, until - time.monotonic()))


def _before_fork() -> None:
    for work in list(_waiting):
        if work.sending.acquire(timeout=_FORK_S):
            _held.append(work.sending)


def _after_in_parent() -> None:
    while _held:
        _held.pop().release()


def _after_in_child() -> None:
    _held.clear()
    for work in list(_waiting):
        work.start_empty()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
