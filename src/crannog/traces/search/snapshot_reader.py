"""One snapshot of the span table, open for the queries of one search: which files it reads, and when their spans start.

When spans start is an estimate, to choose a time range with about some number of them: those of a file are assumed to start
evenly between the earliest and latest start in the log's statistics; the staged tail is sampled. A wrong estimate makes a
step smaller or larger, and never changes a result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read, written
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.engine.sql.file_pruning import pruned
from crannog.engine.sql.running_queries import check_cancelled, scoped_cursor
from crannog.errors import Overloaded, SnapshotGone, Unavailable
from crannog.traces.search.attribute_sql import integer_comparison
from crannog.traces.search.filter_sql import COLUMNS
from crannog.traces.search.filter_tree import And, Compare, Filter, Level, OneOf, Type
from crannog.traces.span_table import COPY_ORDER, trace_id_high
from crannog.traces.trace import ERROR_STATUS, STATUS_NAMES

if TYPE_CHECKING:
    import duckdb

EARLIEST, LATEST = -(2**63), 2**63 - 1
_SAMPLE_SIZE = 512
_MAX_SCANS = 16
"""A query scans this many files each by itself; of more, it scans all rows."""


@dataclass(frozen=True, slots=True)
class TimeBin:
    """Spans that start from `low` to `high`, both included."""

    low: int
    high: int
    rows: int


class TimeHistogram:
    """The number of rows by start, from bins that may overlap."""

    def __init__(self, bins: Sequence[TimeBin]) -> None:
        self.low = min((time_bin.low for time_bin in bins), default=0)
        self.high = max((time_bin.high for time_bin in bins), default=0)
        changes: dict[int, float] = {}
        for time_bin in bins:
            density = time_bin.rows / (time_bin.high - time_bin.low + 1)
            changes[time_bin.high + 1] = changes.get(time_bin.high + 1, 0.0) + density
            changes[time_bin.low] = changes.get(time_bin.low, 0.0) - density
        self._density_changes = sorted(changes.items(), reverse=True)

    def range_start(self, end: int, rows: int) -> int:
        """Return a time from which to `end`, excluded, about `rows` rows start; `EARLIEST` if there are fewer."""
        density, remaining, time = 0.0, float(rows), min(end, self.high + 1)
        for change_time, change in self._density_changes:
            if change_time < time:
                if density > 0:
                    rows_between = (time - change_time) * density
                    if rows_between >= remaining:
                        start = time - max(1, int(remaining / density))
                        return start if start > self.low else EARLIEST
                    remaining -= rows_between
                time = change_time
            density += change
        return EARLIEST


def tail_part(staged: pa.Table, conditions: Sequence[Condition]) -> pa.Table | None:
    """Return the staged rows that may meet the conditions, so that a query need not scan a long tail; None for all."""
    for condition in conditions:
        if condition.column == "trace_hi" and condition.operator in ("=", "in"):
            return _with_ids(staged, condition.values)
    low, high = _start_range(conditions)
    return None if (low, high) == (EARLIEST, LATEST) else _started_between(staged, low, high)


def _with_ids(staged: pa.Table, ids: Sequence[int]) -> pa.Table:
    wanted = pa.array(ids, pa.int64())
    found, start = [staged.slice(0, 0)], 0
    for chunk in staged["trace_hi"].chunks:
        matches = pc.is_in(chunk, value_set=wanted)
        # Few chunks have any, and filtering all columns of the others would cost more than the search itself.
        if matches.true_count:
            found.append(staged.slice(start, len(chunk)).filter(matches))
        start += len(chunk)
    return pa.concat_tables(found)


def _started_between(staged: pa.Table, low: int, high: int) -> pa.Table:
    """Return the rows from the first to the last chunk with a start in the range: spans arrive about in that order."""
    first, last, start = staged.num_rows, 0, 0
    for chunk in staged["start_ns"].chunks:
        ends = pc.min_max(chunk)
        end = start + len(chunk)
        if ends["min"].is_valid and ends["min"].as_py() <= high and ends["max"].as_py() >= low:
            first, last = min(first, start), end
        start = end
    return staged.slice(first, max(0, last - first))


def time_histogram_of(snapshot: Snapshot, files: Sequence[str]) -> TimeHistogram:
    """Return the histogram of some files of a base and of the whole tail."""
    return TimeHistogram([*_file_bins(snapshot, set(files)), *_tail_bins(snapshot.tail.rows["start_ns"])])


def _file_bins(snapshot: Snapshot, files: set[str]) -> list[TimeBin]:
    actions = snapshot.base.actions
    if not files or "min" not in actions.column_names:
        return [TimeBin(EARLIEST, LATEST, sum(snapshot.base.files[path].rows for path in files))] if files else []
    lows, highs = (pc.struct_field(actions[name], "start_ns").to_pylist() for name in ("min", "max"))
    return [
        TimeBin(EARLIEST if low is None else low, LATEST if high is None else high, file.rows)
        for low, high, (path, file) in zip(lows, highs, snapshot.base.files.items(), strict=True)
        if path in files
    ]


def _tail_bins(starts: pa.ChunkedArray) -> list[TimeBin]:
    count = len(starts)
    if not count:
        return []
    ends = pc.min_max(starts).as_py()
    step = max(1, count // _SAMPLE_SIZE)
    sample = sorted([ends["min"], *starts.take(pa.array(range(0, count, step), pa.int64())).to_pylist(), ends["max"]])
    share = -(-count // (len(sample) - 1))
    return [TimeBin(low, high, share) for low, high in pairwise(sample)]


_TRACE_WINDOW_NS = 24 * 3600 * 10**9
_SMALL_BASE_ROWS = 5_000_000

NEWEST_COPY_FIRST = ", ".join(f"{name} DESC" for name in COPY_ORDER)


class SnapshotReader:
    """Queries the staged tail and the files that may match, with DuckDB."""

    def __init__(self, table: OpenTable, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> None:
        self._table = table
        self.snapshot = snapshot
        self.cursor = cursor
        self._registered: set[str] = set()
        self._numbers = itertools.count()

    def rows_of_ids(self, ids: Sequence[bytes]) -> str:
        """Return the SQL, in parentheses, of rows among which are all those of some traces."""
        conditions = [_condition("trace_hi", "in", *{trace_id_high(trace_id) for trace_id in ids})]
        files = pruned(self.snapshot.base, conditions).files
        by_path = dict(zip(self.snapshot.local_paths(list(files)), files, strict=True))
        engine = self._table.warehouse.duckdb
        found = engine.bloom_filters("trace_id").row_ranges(list(by_path), ids)
        ranges = {path: rows for path, rows in found.items() if rows is not None}
        if len(ranges) > _MAX_SCANS:
            ranges = {}
        whole = [by_path[path] for path in found if path not in ranges]
        has_others = whole or not ranges or self.snapshot.visible_tail().num_rows
        parts = [self.rows(conditions, files=whole)] if has_others else []
        names = ", ".join(map(quoted, self.snapshot.base.schema.names))
        for path, chosen in ranges.items():
            rows = " OR ".join(f"file_row_number BETWEEN {start} AND {end - 1}" for start, end in chosen)
            parts.append(f"(SELECT {names} FROM {engine.scan([path], self.snapshot.base.schema)} WHERE {rows})")
        return f"({' UNION ALL '.join(parts)})"

    def rows(
        self,
        conditions: Sequence[Condition] = (),
        columns: Sequence[str] | None = None,
        *,
        files: Sequence[str] | None = None,
    ) -> str:
        """Return the SQL, in parentheses, of the rows in the tail and in files that may meet the conditions.

        DuckDB plans the query faster if it names only a few columns. `files` are those to read, if the caller knows better.
        """
        files = pruned(self.snapshot.base, conditions).files if files is None else files
        staged = tail_part(self.snapshot.visible_tail(), conditions)
        # The name of the relation tells which rows it has.
        prefix = "spans" if staged is None else f"spans_{next(self._numbers)}"
        sql, tables = self._table.relation(self.snapshot, prefix, files=files, columns=columns, staged=staged)
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


_RANGES = ("=", "<", "<=", ">", ">=")


def pruning_conditions(filter: Filter) -> list[Condition]:
    """Return some of the conditions that a span must meet to match the filter."""
    match filter:
        case And(terms):
            return [condition for term in terms for condition in pruning_conditions(term)]
        case Compare(field, operator, value) if field.level is Level.COLUMN and operator in _RANGES:
            return _comparison_conditions(field.name, field.type, operator, value)
        case OneOf(field, values, False) if field.level is Level.COLUMN:
            if field.name == "trace_id":
                return [_condition("trace_hi", "in", *(trace_id_high(bytes.fromhex(str(value))) for value in values))]
            if field.name == "service":
                return [_condition("service_name", "in", *values)]
    return []


def start_bounds(filter: Filter) -> tuple[int, int]:
    """Return the earliest and latest start that a match of the filter can have."""
    return _start_range(pruning_conditions(filter))


def _start_range(conditions: Sequence[Condition]) -> tuple[int, int]:
    low, high = EARLIEST, LATEST
    for condition in conditions:
        if condition.column == "start_ns":
            [value] = condition.values
            if condition.operator in (">", ">=", "="):
                low = max(low, value)
            if condition.operator in ("<", "<=", "="):
                high = min(high, value)
    return low, high


def _comparison_conditions(name: str, kind: Type, operator: str, value: Any) -> list[Condition]:
    if name == "service" and operator == "=":
        return [_condition("service_name", "=", value)]
    if name == "trace_id":
        return [_condition("trace_hi", "=", trace_id_high(bytes.fromhex(value)))]
    if name == "status":
        return [_condition("status_code", "=", STATUS_NAMES.index(value))]
    if name == "error" and value is True:
        return [_condition("status_code", "=", ERROR_STATUS)]
    if kind in (Type.DURATION, Type.TIME, Type.NUMBER):
        match integer_comparison(operator, value):
            case bound_operator, bound:
                return [_condition(COLUMNS[name], bound_operator, bound)]
    return []


def _condition(column: str, operator: str, *values: Any) -> Condition:
    return Condition(0, column, operator, values)
