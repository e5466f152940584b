"""Derived tables as readers see them: merged, with everything that came since the last derive, in the process.

A new span counts at once. What the tables lack is worked out by the same definitions that Spark uses; without any
derive, and so without Spark, that is everything.
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
from crannog.traces.derived.base_changes import DAY, BaseChanges, changes_since, files_by_day
from crannog.traces.derived.definitions import DerivedTable
from crannog.traces.derived.engines import DuckDBQueryEngine, duckdb_query_engine
from crannog.traces.derived.missing_rows import MissingRows, distinct_spans, find_missing_rows, missing_rows_sql
from crannog.traces.derived.tables import derived_version, existing_table

_ATTEMPTS = 5
_MAX_CACHED = 8
T = TypeVar("T")


class DerivedViews:
    """Reads derived tables of one warehouse. Safe for threads; remembers what it found out about a few versions."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        self._found: OrderedDict[Hashable, object] = OrderedDict()

    def query(
        self,
        spans: OpenTable,
        derived: DerivedTable,
        query: Callable[[str], str],
        *,
        first: dt.date | None = None,
        last: dt.date | None = None,
    ) -> pa.Table:
        """Return what a query gives; it is made from the relation to read, which has one row per `derived.group_by`.

        `first` and `last` are the days that are needed.
        """
        return _retried(lambda: self._ask(spans, derived, query, first, last))

    def query_spans(
        self,
        spans: OpenTable,
        query: Callable[[str], str],
        *,
        first: dt.date | None = None,
        last: dt.date | None = None,
    ) -> pa.Table:
        """Return what a query gives over the spans of some days themselves, each span once, in all their columns."""

        def asked() -> pa.Table:
            snapshot = spans.snapshot()
            with duckdb_query_engine(spans, snapshot) as engine:
                missing = self._rest(engine, spans, snapshot, None, 0, first, last)
                return engine.query(query(f"({distinct_spans(engine, missing, snapshot.base.schema.names)})"))

        return _retried(asked)

    def _ask(
        self,
        spans: OpenTable,
        derived: DerivedTable,
        query: Callable[[str], str],
        first: dt.date | None,
        last: dt.date | None,
    ) -> pa.Table:
        table = existing_table(self._tables, derived, spans)
        # Before the spans: a derived table is never ahead of spans that are looked at later.
        register = table.snapshot() if table is not None else None
        start = derived_version(register.base) if register is not None else 0
        snapshot = spans.snapshot()
        if snapshot.base.version < start:
            spans.log.refresh()
            snapshot = spans.snapshot()
        with duckdb_query_engine(spans, snapshot) as engine:
            missing = self._rest(engine, spans, snapshot, start, derived.reach_days, first, last)
            parts = [self._kept(spans, derived, missing, register, first, last)] if register is not None else []
            if not missing.is_empty or not any(parts):
                parts.append(
                    f"SELECT * FROM ({missing_rows_sql(engine, derived, missing)}) n WHERE {_date_range_sql(first, last)}"
                )
            names = ", ".join(name for name in derived.columns.names if name != "spans_version")
            union = " UNION ALL ".join(f"SELECT {names} FROM ({part}) p" for part in parts if part)
            return engine.query(query(f"({derived.merged_sql(f'({union})')})"))

    def _kept(
        self,
        spans: OpenTable,
        derived: DerivedTable,
        missing: MissingRows,
        register: Snapshot,
        first: dt.date | None,
        last: dt.date | None,
    ) -> str:
        """Return the SQL of the rows that stand as they were derived; empty if none does."""
        stale = missing.stale_for(derived)
        paths = [
            path
            for path, file in register.base.files.items()
            if not missing.changes.everything
            and (day := file.partition["partition_date"]) not in stale
            and (first is None or day >= first)
            and (last is None or day <= last)
        ]
        return (
            f"SELECT * FROM {spans.warehouse.duckdb.scan(register.local_paths(paths), register.base.schema)}"
            if paths
            else ""
        )

    def _rest(
        self,
        engine: DuckDBQueryEngine,
        spans: OpenTable,
        snapshot: Snapshot,
        start: int | None,
        reach_days: int,
        first: dt.date | None,
        last: dt.date | None,
    ) -> MissingRows:
        """Return what came since a version on some days and those near; without one, all their spans."""
        first = first - DAY * reach_days if first is not None else None
        last = last + DAY * reach_days if last is not None else None
        base = snapshot.base

        tail = snapshot.visible_tail()

        def found() -> MissingRows:
            came = self._changes(spans, start, base).within(first, last)
            # Without the rows of the tail, which is large and in memory anyway as long as it lasts.
            return replace(find_missing_rows(engine, came, tail, _days_in(tail, first, last)), tail=None)

        missing = self._once((base.table_id, start, base.version, snapshot.tail.end, first, last), found)
        return replace(missing, tail=tail)

    def _changes(self, spans: OpenTable, start: int | None, head: Base) -> BaseChanges:
        if start is None:
            live = files_by_day(head)
            return BaseChanges(0, head.version, {}, {}, live, frozenset(live))
        return self._once((head.table_id, start, head.version), lambda: changes_since(spans, start, head))

    def _once(self, what: Hashable, find: Callable[[], T]) -> T:
        with self._lock:
            if what in self._found:
                self._found.move_to_end(what)
                return cast("T", self._found[what])
        value = find()
        with self._lock:
            self._found[what] = value
            while len(self._found) > _MAX_CACHED:
                self._found.popitem(last=False)
        return value


def _retried(read: Callable[[], pa.Table]) -> pa.Table:
    """Read; where files went meanwhile, what replaced them."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(SnapshotGone):
            return read()
    return read()


def _days_in(tail: pa.Table, first: dt.date | None, last: dt.date | None) -> frozenset[dt.date]:
    days = tail["partition_date"].unique().to_pylist()
    return frozenset(day for day in days if (first is None or day >= first) and (last is None or day <= last))


def _date_range_sql(first: dt.date | None, last: dt.date | None) -> str:
    parts = [f"partition_date >= DATE '{first}'"] if first is not None else []
    parts += [f"partition_date <= DATE '{last}'"] if last is not None else []
    return " AND ".join(parts) or "true"
