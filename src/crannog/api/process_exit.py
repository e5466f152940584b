"""What the end of the process and a fork mean for work that waits in memory."""

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
    """Something that holds work of this process."""

    sending: threading.Lock
    """Held while something is sent: a fork waits for it, or the child would inherit its locks taken."""

    def close(self, timeout: float) -> None:
        """Send what waits, and end."""

    def start_empty(self) -> None:
        """Forget everything: this is a child, and what waits is the parent's to send."""


_waiting: weakref.WeakSet[Waiting] = weakref.WeakSet()
_held: list[threading.Lock] = []


def look_after(work: Waiting) -> None:
    """Drain it when the process ends, and empty it in a child."""
    _waiting.add(work)


def leave(work: Waiting) -> None:
    """It has ended by itself."""
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
