"""Questions about traces while they run: each has an id and a time, and can be taken back, as a query of SQL can.

What works on a question finds it by its thread: to hand it down to every read of a file would name it everywhere.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from crannog.api.cancellation import Cancellation
from crannog.engine.duckdb.engine import DuckDBEngine
from crannog.engine.sql.running_queries import RunningQueries
from crannog.errors import CrannogError

if TYPE_CHECKING:
    import duckdb

_current: ContextVar[Cancellation | None] = ContextVar("question", default=None)
T = TypeVar("T")


@contextmanager
def scope(running_queries: RunningQueries, query_id: str | None, timeout_s: float | None) -> Iterator[None]:
    """Ask something within limits; what is asked inside of it is a part of it.

    Raises TimedOut and Cancelled, Conflict if the id runs already, Overloaded if too many wait.
    """
    if _current.get() is not None:
        yield
        return
    with running_queries.running(query_id, timeout_s) as running, cancelled_by(running):
        yield


def stream_in_scope(
    running_queries: RunningQueries, query_id: str | None, timeout_s: float | None, steps: Generator[T, None, None]
) -> Generator[T, None, None]:
    """Yield what `steps` give as one question, from the first of them until the last, or until it is closed."""
    with ExitStack() as stack:
        running = _current.get() or stack.enter_context(running_queries.running(query_id, timeout_s))
        stack.enter_context(closing(steps))
        while True:
            # Between two steps the thread is the caller's, whose other questions are no part of this one.
            with cancelled_by(running):
                check_cancelled()
                try:
                    step = next(steps)
                except StopIteration:
                    return
            yield step


@contextmanager
def cancelled_by(cancellation: Cancellation | None) -> Iterator[None]:
    """Let what is asked in a block end with a job, which has an end of its own; without one, as ever."""
    token = _current.set(cancellation)
    try:
        yield
    finally:
        _current.reset(token)


def check_cancelled() -> None:
    """Raise TimedOut or Cancelled if the question that this thread works on is to end."""
    running = _current.get()
    if running is not None:
        running.check()


@contextmanager
def scoped_cursor(
    engine: DuckDBEngine, tables: Mapping[str, pa.Table] | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a cursor that sees `tables`, and whose query ends with the question; one at a time."""
    running = _current.get()
    with engine.cursor(tables) as cursor:
        if running is None:
            yield cursor
            return
        import duckdb

        with running.interrupting(cursor.interrupt):
            try:
                yield cursor
            except (duckdb.Error, pa.ArrowException, CrannogError):
                # Whatever the engine calls it, a query that was ended is told as one.
                running.check()
                raise
