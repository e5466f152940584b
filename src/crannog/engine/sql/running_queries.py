"""Running queries: their ids, the limit on concurrent ones, their deadlines and their cancellation.

One thread watches all deadlines: a thread per query would cost a short query a tenth of its time. The query that a thread runs
is in a context variable, so that it need not be passed down to every read of a file.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pyarrow as pa

from crannog.api.arguments import checked_query_id, checked_timeout
from crannog.api.reports import Cancellation
from crannog.engine.duckdb.engine import DuckDBEngine
from crannog.errors import Cancelled, Conflict, CrannogError, NotFound, Overloaded, TimedOut
from crannog.settings import Settings

if TYPE_CHECKING:
    import duckdb

_IDLE_S = 30.0
# A query ends within this time after its timeout, or it is given up: its place is free, and it goes on in the background.
GRACE_S = 2.0
_MOST_ABANDONED = 4


class Deadlines:
    """Calls functions at their deadlines. Thread-safe; the watching thread ends after a while without deadlines."""

    def __init__(self) -> None:
        self._due: dict[int, tuple[float, Callable[[], None]]] = {}
        self._changed = threading.Condition()
        self._wakes_at = math.inf
        self._is_watched = False
        self._count = 0

    def add(self, seconds: float, act: Callable[[], None]) -> int:
        """Call `act` after `seconds`, in another thread, unless the returned number is removed first."""
        at = time.monotonic() + seconds
        with self._changed:
            self._count += 1
            self._due[self._count] = (at, act)
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, name="crannog-deadlines", daemon=True).start()
            elif at < self._wakes_at:
                self._changed.notify()
            return self._count

    def remove(self, number: int) -> None:
        """Remove a deadline, if it has not passed."""
        with self._changed:
            self._due.pop(number, None)

    def _watch(self) -> None:
        while True:
            with self._changed:
                late = self._late()
                if not late:
                    idle = not self._due
                    self._wakes_at = min((at for at, _ in self._due.values()), default=time.monotonic() + _IDLE_S)
                    self._changed.wait(self._wakes_at - time.monotonic())
                    late = self._late()
                    if idle and not self._due and not late:
                        self._is_watched = False
                        return
            for act in late:
                act()

    def _late(self) -> list[Callable[[], None]]:
        now = time.monotonic()
        numbers = [number for number, (at, _) in self._due.items() if at <= now]
        return [self._due.pop(number)[1] for number in numbers]


class Running(Cancellation):
    """One running query; it can be cancelled, and ends at its timeout."""

    def __init__(self, query_id: str, timeout_s: float) -> None:
        super().__init__(f"query {query_id} was cancelled")
        self.query_id = query_id
        self.timeout_s = timeout_s
        self.started = time.perf_counter()
        self.deadline = 0
        self.is_active = False
        self._late = False

    def time_is_over(self) -> None:
        """Cancel it because of its timeout."""
        self._late = True
        self.cancel()

    def check(self) -> None:
        try:
            super().check()
        except Cancelled:
            if self._late:
                raise TimedOut(
                    f"query {self.query_id} took longer than {self.timeout_s:g} s; narrow it, or raise timeout_s"
                ) from None
            raise

    @property
    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000


class RunningQueries:
    """All running and waiting queries of a connection. Ids belong to an owner: those of two owners never meet."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._queries: dict[tuple[str, str], Running] = {}
        self._changed = threading.Condition()
        self._active = 0
        self._waiting = 0
        self.abandoned = 0
        """How many queries were given up and still run."""
        self._deadlines = Deadlines()

    @contextmanager
    def running(self, query_id: str | None, timeout_s: float | None, owner: str = "") -> Iterator[Running]:
        """Register a query and wait for its turn.

        Raises Conflict if the owner runs a query with this id, Overloaded if too many wait.
        """
        running = self._enter(query_id, timeout_s, owner)
        try:
            yield running
        finally:
            with self._changed:
                if self._forget(running, owner):
                    self._active -= 1
                    self._changed.notify_all()
                else:
                    self.abandoned -= 1

    def _enter(self, query_id: str | None, timeout_s: float | None, owner: str) -> Running:
        running = Running(checked_query_id(query_id), checked_timeout(timeout_s) or self._settings.sql_timeout_s)
        with self._changed:
            if (owner, running.query_id) in self._queries:
                raise Conflict(f"a query with the id {running.query_id!r} is already running; use another id, or none")
            if self.abandoned >= max(_MOST_ABANDONED, self._settings.sql_running):
                raise Overloaded(
                    f"{self.abandoned} queries that ran into their timeout have not ended yet; try again later",
                    retry_after_s=10,
                )
            if self._active >= self._settings.sql_running and self._waiting >= self._settings.sql_waiting:
                raise Overloaded(
                    f"{self._active} queries run and {self._waiting} wait, which is the limit; try again later",
                    retry_after_s=1,
                )
            self._queries[owner, running.query_id] = running
            running.deadline = self._deadlines.add(running.timeout_s, lambda: self._late(running, owner))
            self._waiting += 1
            try:
                while self._active >= self._settings.sql_running:
                    running.check()
                    self._changed.wait(0.1)
                running.check()
            except BaseException:
                self._forget(running, owner)
                raise
            finally:
                self._waiting -= 1
            self._active += 1
            running.is_active = True
        return running

    def _late(self, running: Running, owner: str) -> None:
        running.time_is_over()
        with self._changed:
            if self._queries.get((owner, running.query_id)) is running:
                running.deadline = self._deadlines.add(GRACE_S, lambda: self._give_up(running, owner))

    def _give_up(self, running: Running, owner: str) -> None:
        """Free the place of a query that does not end."""
        with self._changed:
            if running.is_active and self._queries.get((owner, running.query_id)) is running:
                self._forget(running, owner)
                self.abandoned += 1
                self._active -= 1
                self._changed.notify_all()

    def _forget(self, running: Running, owner: str) -> bool:
        self._deadlines.remove(running.deadline)
        if self._queries.get((owner, running.query_id)) is not running:
            return False
        del self._queries[owner, running.query_id]
        return True

    def cancel(self, query_id: str, owner: str = "") -> None:
        """Cancel a running or waiting query. Raises NotFound if no query of the owner has this id."""
        with self._changed:
            running = self._queries.get((owner, query_id))
        if running is None:
            raise NotFound(f"no query {query_id!r} is running; it may have ended")
        running.cancel()

    def ids(self) -> list[str]:
        with self._changed:
            return [query_id for _, query_id in self._queries]


current_query: ContextVar[Cancellation | None] = ContextVar("current_query", default=None)
"""What cancels the query that this thread runs; None if it runs none."""


@contextmanager
def cancelled_by(cancellation: Cancellation | None) -> Iterator[None]:
    """Run a block as part of a job, so that its queries end when the job is cancelled."""
    token = current_query.set(cancellation)
    try:
        yield
    finally:
        current_query.reset(token)


def check_cancelled() -> None:
    """Raise TimedOut or Cancelled if the current query timed out or was cancelled."""
    running = current_query.get()
    if running is not None:
        running.check()


@contextmanager
def scoped_cursor(
    engine: DuckDBEngine, tables: Mapping[str, pa.Table] | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a cursor that sees `tables` and is interrupted when the current query is cancelled."""
    running = current_query.get()
    with engine.cursor(tables) as cursor:
        if running is None:
            yield cursor
            return
        import duckdb

        with running.interrupting(cursor.interrupt):
            try:
                yield cursor
            except (duckdb.Error, pa.ArrowException, CrannogError):
                # An interrupted query raises TimedOut or Cancelled, whatever error DuckDB reports.
                running.check()
                raise
