"""Running trace queries: each has an id and a time limit and can be cancelled, like SQL queries.

The current query is a context variable, so that it need not be passed down to every read of a file.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from crannog.api.reports import Cancellation
from crannog.engine.duckdb.engine import DuckDBEngine
from crannog.engine.sql.running_queries import RunningQueries
from crannog.errors import CrannogError

if TYPE_CHECKING:
    import duckdb

_current: ContextVar[Cancellation | None] = ContextVar("trace_query", default=None)
T = TypeVar("T")


@contextmanager
def scope(running_queries: RunningQueries, query_id: str | None, timeout_s: float | None) -> Iterator[None]:
    """Run a block as one query with limits; nested scopes belong to the outer one.

    Raises TimedOut, Cancelled, Conflict if a query with this id is running, Overloaded if too many are waiting.
    """
    if _current.get() is not None:
        yield
        return
    with running_queries.running(query_id, timeout_s) as running, cancelled_by(running):
        yield


def stream_in_scope(
    running_queries: RunningQueries, query_id: str | None, timeout_s: float | None, steps: Generator[T, None, None]
) -> Generator[T, None, None]:
    """Yield from `steps` as one query, which ends with the last step or when the generator is closed."""
    with ExitStack() as stack:
        running = _current.get() or stack.enter_context(running_queries.running(query_id, timeout_s))
        stack.enter_context(closing(steps))
        while True:
            # Between two steps, the caller may run other queries in this thread, which do not belong to this one.
            with cancelled_by(running):
                check_cancelled()
                try:
                    step = next(steps)
                except StopIteration:
                    return
            yield step


@contextmanager
def cancelled_by(cancellation: Cancellation | None) -> Iterator[None]:
    """Run a block as part of a job, so that its queries end when the job is cancelled."""
    token = _current.set(cancellation)
    try:
        yield
    finally:
        _current.reset(token)


def check_cancelled() -> None:
    """Raise TimedOut or Cancelled if the current query timed out or was cancelled."""
    running = _current.get()
    if running is not None:
        running.check()


@contextmanager
def scoped_cursor(
    engine: DuckDBEngine, tables: Mapping[str, pa.Table] | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a cursor that sees `tables` and is interrupted when the current query is cancelled."""
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
                # An interrupted query raises TimedOut or Cancelled, whatever error DuckDB reports.
                running.check()
                raise
