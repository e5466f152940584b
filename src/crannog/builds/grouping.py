"""Many callers, one act: whoever finds none under way leads it for everyone who waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from crannog.errors import CrannogError, Overloaded, Unavailable

V = TypeVar("V")
R = TypeVar("R")
_MOST_WAITING = 10_000


def _held() -> Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class Call(Generic[V, R]):
    """One caller's wish, and what became of it."""

    value: V
    result: R | None = None
    error: BaseException | None = None
    done: bool = False
    leads: bool = False
    # A bare lock, held until the caller is woken: an Event makes a Condition and two locks for each wait.
    asleep: Lock = field(default_factory=_held)


class Group(Generic[V, R]):
    """Hands waiting calls to `work` together, one group at a time; `work` sets each call's result or error."""

    def __init__(self, work: Callable[[list[Call[V, R]]], None]) -> None:
        self._work = work
        self._waiting: deque[Call[V, R]] = deque()
        self._mutex = threading.Lock()
        self._led = False

    def submit(self, value: V) -> R:
        """Return the result of one value, worked on together with those of others."""
        call: Call[V, R] = Call(value)
        with self._mutex:
            if len(self._waiting) >= _MOST_WAITING:
                raise Overloaded(f"{_MOST_WAITING:,} calls wait for the log already; try again shortly", retry_after_s=0.5)
            self._waiting.append(call)
            call.leads, self._led = not self._led, True
        if not call.leads:
            self._wait(call)
        if not call.done:
            self._lead()
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[return-value]

    def _lead(self) -> None:
        with self._mutex:
            group = list(self._waiting)
            self._waiting.clear()
        try:
            self._work(group)
        except BaseException as error:
            for call in group:
                if call.error is None and call.result is None:
                    call.error = error if isinstance(error, CrannogError) else Unavailable(
                        f"the write was interrupted ({type(error).__name__}); it may or may not be kept: send it again"
                    )
            if not isinstance(error, CrannogError):
                raise
        finally:
            for call in group:
                call.done = True
                if not call.leads:
                    call.asleep.release()
            with self._mutex:
                self._promote_next()

    def _wait(self, call: Call[V, R]) -> None:
        try:
            call.asleep.acquire()
        except BaseException:
            # The caller was interrupted: it must not stay behind as a leader whom nobody wakes.
            with self._mutex:
                if call in self._waiting:
                    self._waiting.remove(call)
                    if call.leads:
                        self._promote_next()
            raise

    def _promote_next(self) -> None:
        self._led = bool(self._waiting)
        if self._waiting:
            self._waiting[0].leads = True
            self._waiting[0].asleep.release()
