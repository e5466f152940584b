"""The rows that a derived table lacks, as queries for DuckDB.

They cover the changes from one version of the spans to a later one, and for readers the staged tail:

- on a day that only gained spans, the spans that did not exist before;
- on a stale day, all its spans;
- for edges, pairs of a span and its parent of which at least one is new, and all pairs of stale days.

A span that was sent again counts once. If its new copy differs from the counted one, its day becomes stale.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from crannog.traces.derived.base_changes import BaseChanges, DayRange, days_around
from crannog.traces.derived.definitions import ATTRIBUTE_KEYS, DERIVED_TABLES, EDGES, DerivedTable
from crannog.traces.span_table import NEWEST_COPY_BY, SPAN_IDENTITY

_ALL_COLUMNS_READ = tuple(
    dict.fromkeys(
        (*SPAN_IDENTITY, *NEWEST_COPY_BY, *(name for derived in DERIVED_TABLES for name in derived.span_columns))
    )
)
_SAME_SPAN = " AND ".join(f"r.{name} = d.{name}" for name in SPAN_IDENTITY)
_NEWEST_FIRST = ", ".join(f"{name} DESC" for name in NEWEST_COPY_BY)
# All that definitions read, as text.
_CONTENT_COLUMNS = (
    *("span_name", "span_kind", "service_name", "status_code", "start_ns", "end_ns", "hex(parent_span_id)"),
    *("attributes", "resource_attributes", "scope_attributes", "events", "links"),
)
_CONTENT = " || '|' || ".join(f"coalesce(cast({column} AS STRING), '')" for column in _CONTENT_COLUMNS)
_LEVELS = {"span": "attributes", "resource": "resource_attributes", "scope": "scope_attributes"}
_NESTED = {"event": "events", "link": "links"}
DUPLICATES = pa.schema(
    [
        pa.field("partition_date", pa.date32()),
        pa.field("trace_id", pa.binary()),
        pa.field("span_id", pa.binary()),
        pa.field("existed", pa.bool_()),
        pa.field("was_added", pa.bool_()),
    ]
)
"""Spans with more than one row: `existed` if one was counted before, `was_added` if one is new."""


class QueryRelations(Protocol):
    """The relations that a query may read: files of the span table, and rows in memory."""

    def files(self, paths: Sequence[str]) -> str:
        """Return the name of a relation with the rows of these files of the span table."""

    def register(self, rows: pa.Table) -> str:
        """Return the name of a relation with these rows."""


class QueryEngine(QueryRelations, Protocol):
    """Runs queries over such relations."""

    def files_with(self, paths: Sequence[str], column: str, values: str) -> list[str]:
        """Return the files that have one of the values of a query with this one column."""

    def query(self, query: str) -> pa.Table:
        """Return the result of a query, which must be small."""


@dataclass(frozen=True)
class MissingRows:
    """The rows that derived tables lack, with the duplicates among them; of the tail, only rows of `tail_days`."""

    changes: BaseChanges
    tail: pa.Table | None
    tail_days: frozenset[dt.date]
    duplicates: pa.Table
    related_files: frozenset[str] = frozenset()
    """Files that existed before and have spans of traces with new rows: no others can have copies or relatives of them."""

    def stale_days_of(self, derived: DerivedTable) -> frozenset[dt.date]:
        """Return the days of a derived table that are recomputed."""
        return days_around(self.changes.stale_days, derived.reach_days)

    @property
    def appended_days(self) -> frozenset[dt.date]:
        """The days that only gained spans."""
        return frozenset(self.changes.added_files).union(self.tail_days).difference(self.changes.stale_days)

    @property
    def changed_files(self) -> list[str]:
        """The files that days gained, and all files of stale days."""
        added = [path for files in self.changes.added_files.values() for path in files]
        return added + [path for day in self.changes.stale_days for path in self.changes.current_files.get(day, ())]

    def files_before(self, days: Iterable[dt.date]) -> list[str]:
        """Return the related files that some days, which must not be stale, had at the start."""
        paths = (path for day in days for path in self.changes.files_before(day))
        return [path for path in paths if path in self.related_files]

    def on_day(self, day: dt.date) -> MissingRows:
        """Return the missing rows of one day."""
        return replace(self, changes=self.changes.within(DayRange(day, day)), tail_days=self.tail_days & {day})

    @property
    def is_empty(self) -> bool:
        return not self.appended_days and not self.changes.stale_days


def find_missing_rows(
    engine: QueryEngine, changes: BaseChanges, tail: pa.Table | None = None, days: frozenset[dt.date] = frozenset()
) -> MissingRows:
    """Find the duplicates and the stale days among changes and the tail.

    `days` selects the days of the tail.
    """
    missing = MissingRows(changes, tail, days, DUPLICATES.empty_table())
    if missing.is_empty:
        return missing
    near = days_around(missing.appended_days, EDGES.reach_days) - changes.stale_days
    before = [path for day in near for path in changes.files_before(day)]
    traces = f"SELECT DISTINCT trace_hi FROM ({_changed_rows(engine, missing, ('trace_hi',))})"
    missing = replace(missing, related_files=frozenset(engine.files_with(before, "trace_hi", traces)))
    old = _span_rows(engine, missing.files_before(missing.appended_days))
    names = ", ".join(SPAN_IDENTITY)
    ids = (
        f"SELECT {names}, 1 AS existed FROM ({old})"
        f" UNION ALL SELECT {names}, 0 AS existed FROM ({_changed_rows(engine, missing)})"
    )
    duplicates = engine.query(
        f"SELECT {names}, max(existed) = 1 AS existed, min(existed) = 0 AS was_added FROM ({ids})"
        f" GROUP BY {names} HAVING count(*) > 1"
    ).cast(DUPLICATES)
    if duplicates.num_rows:
        missing = replace(missing, duplicates=duplicates)
        missing = replace(missing, changes=changes.with_stale(_days_that_differ(engine, missing, old)))
    return missing


def _days_that_differ(engine: QueryEngine, missing: MissingRows, old: str) -> list[dt.date]:
    """Return the days on which a counted span was sent again with different content."""
    duplicates = engine.register(missing.duplicates)
    both = f"{old} UNION ALL {_changed_rows(engine, missing)}"
    names = ", ".join(SPAN_IDENTITY)
    again = (
        f"SELECT {names}, {_CONTENT} AS content FROM ({both}) r"
        f" SEMI JOIN (SELECT * FROM {duplicates} WHERE existed AND was_added) d ON {_SAME_SPAN}"
    )
    query = f"SELECT DISTINCT partition_date FROM (SELECT {names} FROM ({again}) GROUP BY {names} HAVING min(content) <> max(content))"
    stale = missing.changes.stale_days
    return [day for day in engine.query(query).column(0).to_pylist() if day not in stale]


def count_new_spans(engine: QueryEngine, missing: MissingRows, changed: int) -> int:
    """Return how many spans to count out of `changed` rows."""
    if not missing.duplicates.num_rows:
        return changed
    duplicates = engine.register(missing.duplicates)
    again = f"SELECT r.trace_id FROM ({_changed_rows(engine, missing)}) r SEMI JOIN {duplicates} d ON {_SAME_SPAN}"
    [rows] = engine.query(f"SELECT count(*) AS n FROM ({again})")["n"].to_pylist()
    [counting] = engine.query(f"SELECT count(*) AS n FROM {_spans_to_count(engine, missing)}")["n"].to_pylist()
    return changed - int(rows) + int(counting)


def missing_rows_sql(engine: QueryRelations, derived: DerivedTable, missing: MissingRows) -> str:
    """Return the query for the rows that a derived table lacks."""
    if derived is EDGES:
        return derived.partial_rows_sql(f"({_call_pairs(engine, missing)})")
    rows = distinct_spans(engine, missing, columns_needed(derived))
    if derived is ATTRIBUTE_KEYS:
        rows = _attributes(rows)
    return derived.partial_rows_sql(f"({rows})")


def columns_needed(derived: DerivedTable) -> tuple[str, ...]:
    """Return the columns that a definition reads, and those that identify and order the copies of a span."""
    return tuple(dict.fromkeys((*SPAN_IDENTITY, *NEWEST_COPY_BY, *derived.span_columns)))


# -- rows ----------------------------------------------------------------------------------------------------------


def _span_rows(
    engine: QueryRelations,
    paths: Sequence[str],
    tail: str | None = None,
    tail_where: str = "true",
    columns: Sequence[str] = _ALL_COLUMNS_READ,
) -> str:
    """Return the SQL of the rows of some files and of the tail, filtered by `tail_where`."""
    names = ", ".join(columns)
    parts = [f"SELECT {names} FROM {engine.files(sorted(paths))}"] if paths or tail is None else []
    if tail is not None:
        parts.append(f"SELECT {names} FROM {tail} WHERE {tail_where}")
    return " UNION ALL ".join(parts)


def _on_days(days: Iterable[dt.date], column: str = "partition_date") -> str:
    listed = ", ".join(f"DATE '{day.isoformat()}'" for day in sorted(days))
    return f"{column} IN ({listed})" if listed else "false"


def _changed_rows(engine: QueryRelations, missing: MissingRows, columns: Sequence[str] = _ALL_COLUMNS_READ) -> str:
    """Return the SQL of the rows that days gained, and of all rows of stale days."""
    tail = engine.register(missing.tail) if missing.tail is not None and missing.tail_days else None
    return _span_rows(engine, missing.changed_files, tail, _on_days(missing.tail_days), columns)


def distinct_spans(engine: QueryRelations, missing: MissingRows, columns: Sequence[str]) -> str:
    """Return the SQL of the missing spans, each once, without spans that existed before."""
    rows = _changed_rows(engine, missing, columns)
    if not missing.duplicates.num_rows:
        return rows
    names = ", ".join(f"r.{name}" for name in columns)
    once = f"SELECT {names} FROM ({rows}) r ANTI JOIN {engine.register(missing.duplicates)} d ON {_SAME_SPAN}"
    again = f"SELECT {names} FROM ({rows}) r SEMI JOIN {_spans_to_count(engine, missing)} d ON {_SAME_SPAN}"
    return f"{once} UNION ALL {_newest(again, columns)}"


def _spans_to_count(engine: QueryRelations, missing: MissingRows) -> str:
    """Return the SQL of the duplicates to count: those that did not exist before, and all of stale days."""
    return f"(SELECT * FROM {engine.register(missing.duplicates)} WHERE NOT existed OR {_on_days(missing.changes.stale_days)})"


def _newest(rows: str, columns: Sequence[str]) -> str:
    place = f"row_number() OVER (PARTITION BY {', '.join(SPAN_IDENTITY)} ORDER BY {_NEWEST_FIRST}) AS place"
    names = ", ".join(columns)
    return f"SELECT {names} FROM (SELECT {names}, {place} FROM ({rows}) a) b WHERE place = 1"


def _attributes(rows: str) -> str:
    """Return the SQL of one row for each attribute of each span, at every level."""
    parts = [
        f"SELECT partition_date, '{level}' AS level, unnest(map_entries({column})) AS entry FROM spans"
        for level, column in _LEVELS.items()
    ]
    parts += [
        f"SELECT partition_date, '{level}' AS level, unnest(map_entries(part.attributes)) AS entry"
        f" FROM (SELECT partition_date, unnest({column}) AS part FROM spans)"
        for level, column in _NESTED.items()
    ]
    entries = " UNION ALL ".join(parts)
    return f"WITH spans AS NOT MATERIALIZED ({rows}) SELECT partition_date, level, entry.key AS key, entry.value AS value FROM ({entries})"


# -- pairs ---------------------------------------------------------------------------------------------------------


def _call_pairs(engine: QueryRelations, missing: MissingRows) -> str:
    """Return the SQL of spans with a parent in another service, of which at least one is new; all of stale days."""
    stale = missing.stale_days_of(EDGES)
    columns = columns_needed(EDGES)
    with_day = f"SELECT *, start_minute // {24 * 60} AS day"
    parts = []
    if missing.appended_days:
        fresh = distinct_spans(engine, missing, columns)
        near = [
            day for day in days_around(missing.appended_days, EDGES.reach_days) if day not in missing.changes.stale_days
        ]
        before = _span_rows(engine, missing.files_before(near), columns=columns)
        names = ", ".join(f"r.{name}" for name in columns)
        related = (
            f"SELECT {names} FROM ({before}) r SEMI JOIN fresh f ON r.trace_hi = f.trace_hi AND r.trace_id = f.trace_id"
        )
        parts.append(
            f"WITH fresh AS (SELECT * FROM ({fresh}) n WHERE NOT {_on_days(missing.changes.stale_days)}),"
            f" related AS ({_newest(related, columns)}),"
            f" both_sides AS ({with_day}, 1 AS is_new FROM fresh UNION ALL {with_day}, 0 AS is_new FROM related)"
            f" {_joined_pairs('both_sides')} AND (c.is_new = 1 OR p.is_new = 1) AND NOT {_on_days(stale, 'c.partition_date')}"
        )
    if stale or not parts:
        days = days_around(stale, EDGES.reach_days)
        paths = [path for day in days for path in missing.changes.current_files.get(day, ())]
        tail = None if missing.tail is None else engine.register(missing.tail)
        whole = _newest(_span_rows(engine, paths, tail, _on_days(days), columns), columns)
        parts.append(
            f"WITH every_side AS ({with_day} FROM ({whole}) w) {_joined_pairs('every_side')} AND {_on_days(stale, 'c.partition_date')}"
        )
    return " UNION ALL ".join(f"SELECT * FROM ({part}) pairs_{number}" for number, part in enumerate(parts))


def _joined_pairs(sides: str) -> str:
    return (
        "SELECT c.partition_date, c.start_minute, p.service_name AS parent_service, c.service_name AS child_service,"
        f" c.status_code FROM {sides} c JOIN {sides} p ON p.trace_id = c.trace_id AND p.span_id = c.parent_span_id"
        f" WHERE p.service_name <> c.service_name AND p.day BETWEEN c.day - {EDGES.reach_days} AND c.day + {EDGES.reach_days}"
    )
