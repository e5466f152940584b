"""One snapshot of the span table, open for the questions of one search."""

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

_TAIL = "spans_tail"
_TRACE_WINDOW_NS = 24 * 3600 * 10**9
_SMALL_BASE_ROWS = 5_000_000

NEWEST_COPY_FIRST = "_created_at DESC, end_ns DESC, start_ns DESC, _batch_id DESC"
"""As `lookup.newest_of_each`: of a span that was sent again, the copy that counts is the first."""


class SnapshotReader:
    """Asks DuckDB about the files that are needed and the staged tail, which is always looked at."""

    def __init__(self, table: OpenTable, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> None:
        self._table = table
        self.snapshot = snapshot
        self.cursor = cursor

    def rows(self, conditions: Sequence[Condition] = (), columns: Sequence[str] | None = None) -> str:
        """Return the SQL, in parentheses, of the rows in files that may meet the conditions, and of the tail.

        Naming few columns makes a short query, which DuckDB plans in less time.
        """
        files = pruned(self.snapshot.base, conditions).files
        sql, _ = self._table.relation(self.snapshot, "spans", files=files, columns=columns)
        return f"({sql})"

    def rows_near(self, low: int, high: int) -> tuple[str, str]:
        """Return the rows of traces with a span that starts from `low` to `high`, and a condition on them.

        All rows while the base is small; else those within a day, where the other spans of such a trace are.
        """
        if self.snapshot.base.rows <= _SMALL_BASE_ROWS:
            return self.rows(), "true"
        earliest, latest = max(low - _TRACE_WINDOW_NS, -(2**63)), min(high + _TRACE_WINDOW_NS, 2**63 - 1)
        return self.rows(start_between(earliest, latest)), f"start_ns >= {earliest} AND start_ns <= {latest}"

    def time_histogram(self, filter: Filter) -> TimeHistogram:
        """Return where in time the rows are that may meet a filter."""
        return time_histogram_of(self.snapshot, pruned(self.snapshot.base, pruning_conditions(filter)).files)

    def query(self, sql: str, tables: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Run a query that may name these tables."""
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
        """Run a query and yield its rows as they come, `size` at a time; nothing else may be asked meanwhile."""
        check_cancelled()
        with _engine_errors_translated(), self.cursor.sql(sql).to_arrow_reader(size) as reader:
            for batch in reader:
                check_cancelled()
                yield batch

    def create_temp_table(self, name: str, query: str) -> int:
        """Keep the rows of a query under a name as long as the search runs, spilled where they are many; return how many."""
        with _engine_errors_translated():
            return written(self.cursor, f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")


def start_between(low: int, high: int) -> list[Condition]:
    """Return the conditions of spans that start from `low` to `high`."""
    return [Condition(0, "start_ns", ">=", (low,)), Condition(0, "start_ns", "<=", (high,))]


@contextmanager
def open_reader(table: OpenTable, snapshot: Snapshot) -> Iterator[SnapshotReader]:
    with scoped_cursor(table.warehouse.local, {_TAIL: snapshot.visible_tail()}) as cursor:
        yield SnapshotReader(table, snapshot, cursor)


@contextmanager
def _engine_errors_translated() -> Iterator[None]:
    """Tell the engine's own errors in ours."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise Overloaded(
            "the search needs more memory or disk than it may have; ask for less time, or raise `local_memory_mb`"
        ) from error
    except duckdb.IOException as error:
        check_cancelled()
        raise SnapshotGone("the files of this snapshot are gone; read again to see the table as it is now") from error
    # After the first rows of a stream, the engine's errors come through Arrow.
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        check_cancelled()
        raise Unavailable(f"the search failed: {str(error).splitlines()[0][:300]}") from error
