"""One snapshot of the span table, open for the queries of one search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read, written
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.engine.sql.file_pruning import pruned
from crannog.errors import Overloaded, SnapshotGone, Unavailable
from crannog.traces.query_scope import check_cancelled, scoped_cursor
from crannog.traces.search.filter_tree import Filter
from crannog.traces.search.pruning import pruning_conditions
from crannog.traces.search.time_histogram import TimeHistogram, time_histogram_of

if TYPE_CHECKING:
    import duckdb

_TRACE_WINDOW_NS = 24 * 3600 * 10**9
_SMALL_BASE_ROWS = 5_000_000

NEWEST_COPY_FIRST = "_created_at DESC, end_ns DESC, start_ns DESC, _batch_id DESC"
"""Sorts the copies of a span as `lookup.newest_copies` does: the copy that counts comes first."""


class SnapshotReader:
    """Queries the staged tail and the files that may match, with DuckDB."""

    def __init__(self, table: OpenTable, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> None:
        self._table = table
        self.snapshot = snapshot
        self.cursor = cursor
        self._registered: set[str] = set()

    def rows(self, conditions: Sequence[Condition] = (), columns: Sequence[str] | None = None) -> str:
        """Return the SQL, in parentheses, of the rows in the tail and in files that may meet the conditions.

        DuckDB plans the query faster if it names only a few columns.
        """
        files = pruned(self.snapshot.base, conditions).files
        sql, tables = self._table.relation(self.snapshot, "spans", files=files, columns=columns)
        for name, rows in tables.items():
            if name not in self._registered:
                self.cursor.register(name, rows)
                self._registered.add(name)
        return f"({sql})"

    def rows_near(self, low: int, high: int) -> tuple[str, str]:
        """Return the rows that may be in a trace with a span that starts from `low` to `high`, and a condition on them.

        All rows if the base is small, otherwise those within a day, where the other spans are assumed to be.
        """
        if self.snapshot.base.rows <= _SMALL_BASE_ROWS:
            return self.rows(), "true"
        earliest, latest = max(low - _TRACE_WINDOW_NS, -(2**63)), min(high + _TRACE_WINDOW_NS, 2**63 - 1)
        return self.rows(start_between(earliest, latest)), f"start_ns >= {earliest} AND start_ns <= {latest}"

    def time_histogram(self, filter: Filter) -> TimeHistogram:
        """Return when the rows start that may match a filter."""
        return time_histogram_of(self.snapshot, pruned(self.snapshot.base, pruning_conditions(filter)).files)

    def query(self, sql: str, tables: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Run a query that may read these tables."""
        check_cancelled()
        for name, table in (tables or {}).items():
            self.cursor.register(name, table)
        try:
            with _engine_errors_translated():
                return read(self.cursor, sql)
        finally:
            for name in tables or {}:
                self.cursor.unregister(name)

    def batches(self, sql: str, size: int) -> Iterator[pa.RecordBatch]:
        """Run a query and yield its rows, `size` at a time. Run no other query until all rows are read."""
        check_cancelled()
        with _engine_errors_translated(), self.cursor.sql(sql).to_arrow_reader(size) as reader:
            for batch in reader:
                check_cancelled()
                yield batch

    def create_temp_table(self, name: str, query: str) -> int:
        """Store the rows of a query until the reader is closed, on disk if they are many; return their number."""
        with _engine_errors_translated():
            return written(self.cursor, f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")


def start_between(low: int, high: int) -> list[Condition]:
    """Return the conditions of spans that start from `low` to `high`."""
    return [Condition(0, "start_ns", ">=", (low,)), Condition(0, "start_ns", "<=", (high,))]


@contextmanager
def open_reader(table: OpenTable, snapshot: Snapshot) -> Iterator[SnapshotReader]:
    with scoped_cursor(table.warehouse.duckdb) as cursor:
        yield SnapshotReader(table, snapshot, cursor)


@contextmanager
def _engine_errors_translated() -> Iterator[None]:
    """Raise errors of DuckDB and Arrow as errors of Crannog."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise Overloaded(
            "the search needs more memory or disk than it may use; search a shorter time range, or raise `local_memory_mb`"
        ) from error
    except duckdb.IOException as error:
        check_cancelled()
        raise SnapshotGone("the files of this snapshot were deleted; read again to get the newest snapshot") from error
    # After the first rows of a stream, DuckDB's errors arrive as Arrow's.
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        check_cancelled()
        raise Unavailable(f"the search failed: {str(error).splitlines()[0][:300]}") from error
