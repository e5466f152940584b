"""The query that a thread runs: a context variable, so that it need not be passed down to every read of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pyarrow as pa

from crannog.api.reports import Cancellation
from crannog.engine.duckdb.engine import DuckDBEngine
from crannog.errors import CrannogError

if TYPE_CHECKING:
    import duckdb

current_query: ContextVar[Cancellation | None] = ContextVar("trace_query", default=None)
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
