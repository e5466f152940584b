"""Group calls: a caller that finds no call running leads one for everyone who waits.

It has no thread of its own, so a single caller pays no switch between threads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from crannog.errors import CrannogError, Overloaded, Unavailable

_MOMENTS, _MOMENT_S = 4, 0.0001

V = TypeVar("V")
R = TypeVar("R")


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

    def __init__(
        self,
        work: Callable[[list[Call[V, R]]], None],
        *,
        called: Callable[[], str],
        most_waiting: int,
        take: Callable[[deque[Call[V, R]]], list[Call[V, R]]] | None = None,
    ) -> None:
        """`called` names what is written, for messages; `take` takes the next group out of those who wait, all by default."""
        self._work = work
        self._called = called
        self._most_waiting = most_waiting
        self._take = take or _all
        self._waiting: deque[Call[V, R]] = deque()
        self._mutex = threading.Lock()
        self._led = False
        self._last = 0

    def submit(self, value: V) -> R:
        """Return the result of one value, worked on together with those of others; Overloaded if too many wait."""
        call: Call[V, R] = Call(value)
        with self._mutex:
            if len(self._waiting) >= self._most_waiting:
                raise Overloaded(
                    f"{self._most_waiting:,} calls wait for the writer of {self._called()} already; try again shortly",
                    retry_after_s=0.5,
                )
            self._waiting.append(call)
            call.leads, self._led = not self._led, True
        if not call.leads:
            self._wait(call)
        if not call.done:
            self._lead()
        if call.error is not None:
            raise call.error
        assert call.result is not None, "work sets each call's result or error"
        return call.result

    def submit_all(self, values: Sequence[V]) -> list[Call[V, R]]:
        """Work on several values as `submit` does on one; return their calls, each with its result or error."""
        calls: list[Call[V, R]] = [Call(value) for value in values]
        with self._mutex:
            self._waiting.extend(calls)
            calls[0].leads, self._led = not self._led, True
        try:
            for call in calls:
                if not call.leads:
                    self._wait(call)
                if not call.done:
                    self._lead()
        except BaseException:
            for call in calls:
                self._withdraw(call)
            raise
        return calls

    def _wait(self, call: Call[V, R]) -> None:
        try:
            call.asleep.acquire()
        except BaseException:
            self._withdraw(call)
            raise

    def _withdraw(self, call: Call[V, R]) -> None:
        """Take back the call of an interrupted caller: it must not stay behind as a leader whom nobody wakes."""
        with self._mutex:
            if call in self._waiting:
                self._waiting.remove(call)
                if call.leads:
                    self._promote_next()

    def _lead(self) -> None:
        # Those of the last group were just woken and are about to come again: without a moment's wait the first of them
        # would go alone and the rest wait for it. A lone caller never waits.
        for _ in range(_MOMENTS):
            if len(self._waiting) >= self._last:
                break
            time.sleep(_MOMENT_S)
        with self._mutex:
            group = self._take(self._waiting)
        self._last = len(group)
        try:
            self._work(group)
        except BaseException as error:
            for call in group:
                if call.result is None and call.error is None:
                    call.error = error if isinstance(error, CrannogError) else self._interrupted(error)
            if not isinstance(error, CrannogError):
                raise
        finally:
            self._hand_over(group)

    def _hand_over(self, group: list[Call[V, R]]) -> None:
        """Wake the group, and the first of those who came meanwhile as the next leader."""
        for call in group:
            call.done = True
            if not call.leads:
                call.asleep.release()
        with self._mutex:
            if self._waiting:
                self._promote_next()
            else:
                self._led = False

    def _promote_next(self) -> None:
        self._led = bool(self._waiting)
        if self._waiting:
            self._waiting[0].leads = True
            self._waiting[0].asleep.release()

    def _interrupted(self, error: BaseException) -> Unavailable:
        return Unavailable(
            f"the write to {self._called()} was interrupted ({type(error).__name__}); it may or may not be kept:"
            " send it again with the same batch id"
        )


def _all(waiting: deque[Call[V, R]]) -> list[Call[V, R]]:
    group = list(waiting)
    waiting.clear()
    return group
