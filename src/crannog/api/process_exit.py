"""Handles work that waits in memory when the process ends or forks."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import Protocol

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
