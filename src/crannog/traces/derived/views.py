"""Derived tables as readers see them: merged, and complete with all spans since the last derive.

New spans count at once: the rows that a table lacks are computed in the process, by the same definitions that Spark uses.
Before the first derive, and so without Spark, those are all rows.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar, cast

import pyarrow as pa

from crannog.delta.log import Base
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.tables import Tables
from crannog.errors import SnapshotGone
from crannog.traces.derived.base_changes import BaseChanges, DayRange, changes_since, files_by_day
from crannog.traces.derived.definitions import DerivedTable, derived_version, existing_table
from crannog.traces.derived.engines import DuckDBQueryEngine, duckdb_query_engine
from crannog.traces.derived.missing_rows import MissingRows, distinct_spans, find_missing_rows, missing_rows_sql

_ATTEMPTS = 5
_MAX_CACHED = 8
T = TypeVar("T")


class DerivedViews:
    """Queries the derived tables of one warehouse. Caches what it finds out about a few versions. Thread-safe."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        self._cache: OrderedDict[Hashable, object] = OrderedDict()

    def query(
        self,
        spans: OpenTable,
        derived: DerivedTable,
        query: Callable[[str], str],
        *,
        first: dt.date | None = None,
        last: dt.date | None = None,
    ) -> pa.Table:
        """Return the result of a query over a derived table for the days from `first` to `last`.

        `query` gets the SQL of the relation to read, which has one row per `derived.group_by`, and returns its own SQL.
        """
        return _retried(lambda: self._query(spans, derived, query, DayRange(first, last)))

    def query_spans(
        self,
        spans: OpenTable,
        query: Callable[[str], str],
        *,
        first: dt.date | None = None,
        last: dt.date | None = None,
    ) -> pa.Table:
        """Return the result of a query over the spans themselves, each span once, with all columns."""

        def result() -> pa.Table:
            snapshot = spans.snapshot()
            with duckdb_query_engine(spans, snapshot) as engine:
                missing = self._missing_rows(engine, spans, snapshot, None, DayRange(first, last))
                return engine.query(query(f"({distinct_spans(engine, missing, snapshot.base.schema.names)})"))

        return _retried(result)

    def _query(self, spans: OpenTable, derived: DerivedTable, query: Callable[[str], str], days: DayRange) -> pa.Table:
        table = existing_table(self._tables, derived, spans)
        # Read before the spans, so that the derived table is not ahead of them.
        derived_snapshot = table.snapshot() if table is not None else None
        start = derived_version(derived_snapshot.base) if derived_snapshot is not None else 0
        snapshot = spans.snapshot()
        if snapshot.base.version < start:
            spans.log.refresh()
            snapshot = spans.snapshot()
        with duckdb_query_engine(spans, snapshot) as engine:
            missing = self._missing_rows(engine, spans, snapshot, start, days.widened(derived.reach_days))
            parts = []
            if derived_snapshot is not None:
                parts.append(self._derived_rows(spans, derived, missing, derived_snapshot, days))
            if not missing.is_empty or not any(parts):
                parts.append(f"SELECT * FROM ({missing_rows_sql(engine, derived, missing)}) n WHERE {days.sql}")
            names = ", ".join(name for name in derived.columns.names if name != "spans_version")
            union = " UNION ALL ".join(f"SELECT {names} FROM ({part}) p" for part in parts if part)
            return engine.query(query(f"({derived.merged_sql(f'({union})')})"))

    def _derived_rows(
        self, spans: OpenTable, derived: DerivedTable, missing: MissingRows, snapshot: Snapshot, days: DayRange
    ) -> str:
        """Return the SQL of the derived rows that are still valid; empty if there are none."""
        if missing.changes.all_stale:
            return ""
        stale = missing.stale_days_of(derived)
        paths = [
            path
            for path, file in snapshot.base.files.items()
            if (day := file.partition["partition_date"]) not in stale and day in days
        ]
        if not paths:
            return ""
        return f"SELECT * FROM {spans.warehouse.duckdb.scan(snapshot.local_paths(paths), snapshot.base.schema)}"

    def _missing_rows(
        self, engine: DuckDBQueryEngine, spans: OpenTable, snapshot: Snapshot, start: int | None, days: DayRange
    ) -> MissingRows:
        """Return the rows of some days that changed since the version `start`; if it is None, all their rows."""
        base, tail = snapshot.base, snapshot.visible_tail()

        def find() -> MissingRows:
            changes = self._changes(spans, start, base).within(days)
            tail_days = frozenset(day for day in tail["partition_date"].unique().to_pylist() if day in days)
            # The cached value must not hold the tail, which is large.
            return replace(find_missing_rows(engine, changes, tail, tail_days), tail=None)

        missing = self._cached((base.table_id, start, base.version, snapshot.tail.end, days), find)
        return replace(missing, tail=tail)

    def _changes(self, spans: OpenTable, start: int | None, head: Base) -> BaseChanges:
        if start is None:
            current_files = files_by_day(head)
            return BaseChanges(0, head.version, {}, {}, current_files, frozenset(current_files))
        return self._cached((head.table_id, start, head.version), lambda: changes_since(spans, start, head))

    def _cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return cast("T", self._cache[key])
        value = compute()
        with self._lock:
            self._cache[key] = value
            while len(self._cache) > _MAX_CACHED:
                self._cache.popitem(last=False)
        return value


def _retried(read: Callable[[], pa.Table]) -> pa.Table:
    """Read, again if files were deleted meanwhile."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(SnapshotGone):
            return read()
    return read()
