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
from crannog.traces.derived.base_changes import DAY, Changes, changes, files_by_day
from crannog.traces.derived.definitions import Derived
from crannog.traces.derived.engines import OnDuckDB, on_duckdb
from crannog.traces.derived.missing_rows import Rest, distinct_spans, find_rest, partial_rows
from crannog.traces.derived.tables import derived_to, existing

_READS = 5
_REMEMBERED = 8
T = TypeVar("T")


class Views:
    """Reads derived tables of one warehouse. Safe for threads; remembers what it found out about a few versions."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        self._found: OrderedDict[Hashable, object] = OrderedDict()

    def ask(
        self,
        spans: OpenTable,
        derived: Derived,
        query: Callable[[str], str],
        *,
        first: dt.date | None = None,
        last: dt.date | None = None,
    ) -> pa.Table:
        """Return what a query gives; it is made from the relation to read, which has one row per `derived.group_by`.

        `first` and `last` are the days that are needed.
        """
        return _again(lambda: self._ask(spans, derived, query, first, last))

    def ask_spans(
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
            with on_duckdb(spans, snapshot) as engine:
                rest = self._rest(engine, spans, snapshot, None, 0, first, last)
                return engine.ask(query(f"({distinct_spans(engine, rest, snapshot.base.schema.names)})"))

        return _again(asked)

    def _ask(
        self,
        spans: OpenTable,
        derived: Derived,
        query: Callable[[str], str],
        first: dt.date | None,
        last: dt.date | None,
    ) -> pa.Table:
        table = existing(self._tables, derived, spans)
        # Before the spans: a derived table is never ahead of spans that are looked at later.
        held = table.snapshot() if table is not None else None
        start = derived_to(held.base) if held is not None else 0
        snapshot = spans.snapshot()
        if snapshot.base.version < start:
            spans.log.refresh()
            snapshot = spans.snapshot()
        with on_duckdb(spans, snapshot) as engine:
            rest = self._rest(engine, spans, snapshot, start, derived.reach, first, last)
            parts = [self._kept(spans, derived, rest, held, first, last)] if held is not None else []
            if not rest.is_empty or not any(parts):
                parts.append(f"SELECT * FROM ({partial_rows(engine, derived, rest)}) n WHERE {_between(first, last)}")
            names = ", ".join(name for name in derived.columns.names if name != "spans_version")
            union = " UNION ALL ".join(f"SELECT {names} FROM ({part}) p" for part in parts if part)
            return engine.ask(query(f"({derived.merged(f'({union})')})"))

    def _kept(
        self,
        spans: OpenTable,
        derived: Derived,
        rest: Rest,
        held: Snapshot,
        first: dt.date | None,
        last: dt.date | None,
    ) -> str:
        """Return the SQL of the rows that stand as they were derived; empty if none does."""
        stale = rest.stale_for(derived)
        paths = [
            path
            for path, file in held.base.files.items()
            if not rest.changes.everything
            and (day := file.partition["partition_date"]) not in stale
            and (first is None or day >= first)
            and (last is None or day <= last)
        ]
        return f"SELECT * FROM {spans.warehouse.local.scan(held.local_paths(paths), held.base.schema)}" if paths else ""

    def _rest(
        self,
        engine: OnDuckDB,
        spans: OpenTable,
        snapshot: Snapshot,
        start: int | None,
        reach: int,
        first: dt.date | None,
        last: dt.date | None,
    ) -> Rest:
        """Return what came since a version on some days and those near; without one, all their spans."""
        first = first - DAY * reach if first is not None else None
        last = last + DAY * reach if last is not None else None
        base = snapshot.base

        tail = snapshot.visible_tail()

        def found() -> Rest:
            came = self._changes(spans, start, base).within(first, last)
            # Without the rows of the tail, which is large and in memory anyway as long as it lasts.
            return replace(find_rest(engine, came, tail, _days(tail, first, last)), tail=None)

        rest = self._once((base.table_id, start, base.version, snapshot.tail.end, first, last), found)
        return replace(rest, tail=tail)

    def _changes(self, spans: OpenTable, start: int | None, head: Base) -> Changes:
        if start is None:
            live = files_by_day(head)
            return Changes(0, head.version, {}, {}, live, frozenset(live))
        return self._once((head.table_id, start, head.version), lambda: changes(spans, start, head))

    def _once(self, what: Hashable, find: Callable[[], T]) -> T:
        with self._lock:
            if what in self._found:
                self._found.move_to_end(what)
                return cast("T", self._found[what])
        value = find()
        with self._lock:
            self._found[what] = value
            while len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)
        return value


def _again(read: Callable[[], pa.Table]) -> pa.Table:
    """Read; where files went meanwhile, what replaced them."""
    for _ in range(_READS - 1):
        with suppress(SnapshotGone):
            return read()
    return read()


def _days(tail: pa.Table, first: dt.date | None, last: dt.date | None) -> frozenset[dt.date]:
    days = tail["partition_date"].unique().to_pylist()
    return frozenset(day for day in days if (first is None or day >= first) and (last is None or day <= last))


def _between(first: dt.date | None, last: dt.date | None) -> str:
    parts = [f"partition_date >= DATE '{first}'"] if first is not None else []
    parts += [f"partition_date <= DATE '{last}'"] if last is not None else []
    return " AND ".join(parts) or "true"
