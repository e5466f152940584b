"""The writer of one table in one process: concurrent callers share one staged file (group commit).

There is no writer thread. Whoever finds no commit under way leads: it takes every waiting call, commits them
together and hands out the results, so a lone caller pays no hand-over between threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from crannog.errors import CrannogError, Overloaded, Unavailable
from crannog.lake.changelog import ChangeLog, Kept
from crannog.lake.stage import Change


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """What a writer holds at most."""

    queue_calls: int
    group_rows: int
    staged_rows: int
    staged_bytes: int


def _held() -> Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class _Call:
    change: Change
    after: int | None = None
    kept: Kept | None = None
    error: BaseException | None = None
    done: bool = False
    leads: bool = False
    # A bare lock, held until the caller is woken: an Event makes a Condition and two locks for each wait.
    asleep: Lock = field(default_factory=_held)


class Writer:
    """Takes changes from any thread; `write` returns once the change is durable and visible."""

    def __init__(self, log: ChangeLog, limits: WriterLimits, *, after_commit: Callable[[], None]) -> None:
        self._log = log
        self._limits = limits
        self._after_commit = after_commit
        self._waiting: deque[_Call] = deque()
        self._mutex = threading.Lock()
        self._led = False

    def write(self, change: Change, *, after: int | None = None) -> Kept:
        """Commit one change; Overloaded at a limit, Unavailable if the storage fails; neither keeps anything halfway.

        With `after`, as the very next sequence after it, or Conflict.
        """
        call = _Call(change)
        call.after = after
        with self._mutex:
            if len(self._waiting) >= self._limits.queue_calls:
                raise Overloaded(
                    f"{self._limits.queue_calls} calls wait for the writer of {self._name} already; try again shortly",
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
        assert call.kept is not None
        return call.kept

    def _wait(self, call: _Call) -> None:
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

    @property
    def _name(self) -> str:
        return self._log.folder.replace("/", ".")

    def _lead(self) -> None:
        with self._mutex:
            group = self._take()
        try:
            admitted = self._admit(group)
            if admitted:
                done = self._log.commit([call.change for call in admitted], after=admitted[0].after)
                for call, kept in zip(admitted, done, strict=True):
                    call.kept = kept
        except BaseException as error:
            for call in group:
                if call.kept is None and call.error is None:
                    call.error = error if isinstance(error, CrannogError) else _interrupted(self._name, error)
            if not isinstance(error, CrannogError):
                raise
        finally:
            self._hand_over(group)
        self._after_commit()

    def _hand_over(self, group: list[_Call]) -> None:
        """Wake the group, and the first of those who came meanwhile as the next leader."""
        for call in group:
            call.done = True
            if not call.leads:
                call.asleep.release()
        with self._mutex:
            self._promote_next()

    def _take(self) -> list[_Call]:
        group: list[_Call] = []
        rows = 0
        while self._waiting and (not group or rows + self._waiting[0].change.rows.num_rows <= self._limits.group_rows):
            if group and self._waiting[0].after is not None:
                break
            call = self._waiting.popleft()
            group.append(call)
            rows += call.change.rows.num_rows
            if call.after is not None:
                break  # its place is its own
        return group

    def _admit(self, group: list[_Call]) -> list[_Call]:
        """Refuse what would go over the staged backlog; a refusal looks at storage first, a fold may have made room."""
        backlog = self._log.backlog()
        rows, size = backlog.rows, backlog.bytes
        admitted: list[_Call] = []
        looked = False
        for call in group:
            more_rows, more_bytes = call.change.rows.num_rows, call.change.bytes
            if not self._fits(rows + more_rows, size + more_bytes) and not looked:
                self._log.refresh()
                backlog, looked = self._log.backlog(), True
                rows = backlog.rows + sum(other.change.rows.num_rows for other in admitted)
                size = backlog.bytes + sum(other.change.bytes for other in admitted)
            if self._fits(rows + more_rows, size + more_bytes):
                admitted.append(call)
                rows, size = rows + more_rows, size + more_bytes
            else:
                call.error = Overloaded(
                    f"{self._name} has {rows:,} staged rows in {size:,} bytes, the limits are"
                    f" {self._limits.staged_rows:,} and {self._limits.staged_bytes:,}; this change adds {more_rows:,} rows."
                    " Nothing of it was kept: fold the table (fold()), or try again once the scheduler has",
                    retry_after_s=5.0,
                )
        return admitted

    def _fits(self, rows: int, size: int) -> bool:
        return rows <= self._limits.staged_rows and size <= self._limits.staged_bytes


def _interrupted(name: str, error: BaseException) -> Unavailable:
    return Unavailable(
        f"the write to {name} was interrupted ({type(error).__name__}); it may or may not be kept:"
        " send it again with the same batch id"
    )
