"""Metadata of the spans: services, operations, attribute keys, which services call which, and suggestions of names.

Suggestions of services and operations are read from all spans. Those of keys and values cost more: they are read from the
newest spans, and from older ones only until enough are found.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from crannog.api.traces import AttributeKey, Dependency, Suggestion
from crannog.api.traces.requests import (
    AttributeKeyQuery,
    CompletionQuery,
    DependencyQuery,
    OperationQuery,
    ServiceQuery,
)
from crannog.engine.duckdb.engine import literal
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.engine.sql.file_pruning import pruned
from crannog.engine.sql.running_queries import scoped_cursor
from crannog.errors import CallerError
from crannog.traces.attribute_values import to_python
from crannog.traces.derived.definitions import ATTRIBUTE_KEYS, EDGES
from crannog.traces.search.attribute_sql import text_literal
from crannog.traces.search.filter_parser import parse_filter
from crannog.traces.search.filter_sql import COLUMNS, condition_sql
from crannog.traces.search.filter_tree import FIELDS, Exists, Field, Filter, Level, Type
from crannog.traces.search.request import checked_limit, span_filter
from crannog.traces.search.snapshot_reader import (
    EARLIEST,
    SnapshotReader,
    open_reader,
    pruning_conditions,
    start_between,
    start_bounds,
)
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import ATTRIBUTE_MAPS
from crannog.traces.times import parse_time

_NS_PER_MINUTE = 60 * 10**9
_MINUTES_PER_DAY = 24 * 60
_LAST_MINUTE = (2**63 - 1) // _NS_PER_MINUTE
_EPOCH = dt.date(1970, 1, 1)
_MAX_DEPENDENCIES = 100_000
_MAX_NAMES = 10_000
_NO_ROWS = pa.table({})


def services(store: SpanStore, _: ServiceQuery) -> list[str]:
    """Return the names of all services, sorted; at most 10,000."""
    found = store.read_newest(lambda table, snapshot: _distinct(table, snapshot, "service_name", "true", []), _NO_ROWS)
    return [row["service_name"] for row in found.to_pylist()]


def operations(store: SpanStore, query: OperationQuery) -> list[tuple[str, str | None]]:
    """Return the operations of a service, each with its kind, sorted; at most 10,000."""
    where = f"service_name = {literal(query.service)}"
    conditions = [Condition(0, "service_name", "=", (query.service,))]
    found = store.read_newest(
        lambda table, snapshot: _distinct(table, snapshot, "span_name, span_kind", where, conditions), _NO_ROWS
    )
    return [(row["span_name"], row["span_kind"]) for row in found.to_pylist()]


def _distinct(table: OpenTable, snapshot: Snapshot, columns: str, where: str, conditions: list[Condition]) -> pa.Table:
    rows, tables = table.relation(snapshot, "spans", files=pruned(snapshot.base, conditions).files)
    with scoped_cursor(table.warehouse.duckdb, tables) as cursor:
        return read(cursor, f"SELECT DISTINCT {columns} FROM ({rows}) WHERE {where} ORDER BY ALL LIMIT {_MAX_NAMES}")


def attribute_keys(store: SpanStore, query: AttributeKeyQuery) -> list[AttributeKey]:
    """Return the keys that spans from day `first` to `last` have, most used first; at most 10,000."""
    examples = [f"example_{number}" for number in (1, 2, 3)]

    def sql(rows: str) -> str:
        return (
            f"SELECT key, level, type, sum(use_count)::VARCHAR AS uses,"
            f" {', '.join(f'min({name}) AS {name}' for name in examples)} FROM {rows} GROUP BY key, level, type"
            f" ORDER BY sum(use_count) DESC, key, level, type LIMIT {_MAX_NAMES}"
        )

    found = store.read(
        lambda table: store.views.query(table, ATTRIBUTE_KEYS, sql, first=query.first, last=query.last), _NO_ROWS
    )
    return [
        AttributeKey(
            row["key"],
            row["level"],
            row["type"],
            int(row["uses"]),
            tuple(row[name] for name in examples if row[name] is not None),
        )
        for row in found.to_pylist()
    ]


def dependencies(store: SpanStore, query: DependencyQuery) -> list[Dependency]:
    """Return the calls between services, sorted by name, in whole minutes: from that of `start` to the last before `end`."""

    def calls(table: OpenTable) -> pa.Table:
        first = None if query.start is None else max(0, parse_time(query.start, "start") // _NS_PER_MINUTE)
        last = None if query.end is None else min(_LAST_MINUTE, -(-parse_time(query.end, "end") // _NS_PER_MINUTE) - 1)
        if last is not None and last < (first or 0):
            return _NO_ROWS
        conditions = [f"minute >= {first}"] if first is not None else []
        conditions += [f"minute <= {last}"] if last is not None else []
        return store.views.query(
            table,
            EDGES,
            lambda rows: (
                "SELECT parent_service, child_service, sum(call_count)::VARCHAR AS calls, sum(error_count)::VARCHAR AS errors"
                f" FROM {rows} WHERE {' AND '.join(conditions) or 'true'} GROUP BY ALL ORDER BY ALL LIMIT {_MAX_DEPENDENCIES}"
            ),
            first=_day(first),
            last=_day(last),
        )

    return [
        Dependency(row["parent_service"], row["child_service"], int(row["calls"]), int(row["errors"]))
        for row in store.read(calls, _NO_ROWS).to_pylist()
    ]


def _day(minute: int | None) -> dt.date | None:
    return None if minute is None else _EPOCH + dt.timedelta(days=min(minute, _LAST_MINUTE) // _MINUTES_PER_DAY)


KINDS = ("service", "operation", "key", "value")
_FIRST_STEP_ROWS, _MAX_ROWS = 50_000, 250_000
_GROWTH = 4
_MAX_COUNTED = 10_000
_NESTED = {"event": "events", "link": "links"}
_UNQUOTED_KEY = re.compile(r"[^\W\d](?:[\w\-/:@]|\.)*")


def complete(store: SpanStore, query: CompletionQuery) -> list[Suggestion]:
    """Return up to `limit` suggestions that begin with `prefix`, most frequent first. Counts cover only the spans read."""
    filter, limit = span_filter(query), checked_limit(query.limit)

    def suggestions(table: OpenTable, snapshot: Snapshot) -> list[Suggestion]:
        kind, prefix = query.what, query.prefix
        if kind not in KINDS:
            raise CallerError(f"what must be one of {', '.join(KINDS)}, got {kind!r}")
        if not isinstance(prefix, str):
            raise CallerError(f"prefix must be text, got {type(prefix).__name__}")
        if kind in ("service", "operation"):
            return _service_or_operation_names(table, snapshot, kind, prefix, filter, limit)
        sql = _value_query(value_field(query.key), prefix) if kind == "value" else _key_query(prefix)
        return _counted_in_steps(table, snapshot, filter, limit, sql)

    return store.read_newest(suggestions, [])


def value_field(key: str | None) -> Field:
    """Return the field to complete values of: an attribute key as in a filter, or a text field."""
    if not isinstance(key, str) or not key:
        raise CallerError('value needs the key to complete values of, such as key="http.method"')
    if key in FIELDS:
        if FIELDS[key].type is not Type.TEXT:
            raise CallerError(
                f"cannot complete values of {key}, which is {FIELDS[key].type.value}; use an attribute key or a text field"
            )
        return FIELDS[key]
    quoted_key = key if _UNQUOTED_KEY.fullmatch(key) or '"' in key else '"' + key + '"'
    exists = parse_filter(f"{quoted_key} exists")
    assert isinstance(exists, Exists)
    return exists.field


def _service_or_operation_names(
    table: OpenTable, snapshot: Snapshot, kind: str, prefix: str, filter: Filter, limit: int
) -> list[Suggestion]:
    column = COLUMNS[kind]
    with open_reader(table, snapshot) as reader:
        found = reader.query(
            f"SELECT {column} AS value, count(*) AS count FROM {reader.rows(pruning_conditions(filter))}"
            f" WHERE starts_with({column}, {text_literal(prefix)}) AND {condition_sql(filter)}"
            f" GROUP BY value ORDER BY count DESC, value LIMIT {limit}"
        )
    return [Suggestion(row["value"], row["count"]) for row in found.to_pylist()]


def _counted_in_steps(
    table: OpenTable, snapshot: Snapshot, filter: Filter, limit: int, query: Callable[[str], str]
) -> list[Suggestion]:
    """Count values in the newest spans first, then in older ones, until enough are found or read."""
    counts: Counter[Any] = Counter()
    with open_reader(table, snapshot) as reader:
        for rows in _newest_rows_first(reader, filter):
            found = reader.query(
                f"SELECT value, count(*) AS count FROM ({query(rows)}) GROUP BY value ORDER BY count DESC LIMIT {_MAX_COUNTED}"
            )
            for row in found.to_pylist():
                counts[row["value"]] += row["count"]
            if len(counts) >= limit:
                break
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [Suggestion(to_python(value[1:]) if value.startswith("=") else value[1:], count) for value, count in listed]


def _newest_rows_first(reader: SnapshotReader, filter: Filter) -> Iterator[str]:
    histogram = reader.time_histogram(filter)
    earliest, latest = start_bounds(filter)
    low, high = max(histogram.low, earliest), min(histogram.high, latest)
    rows, rows_read = _FIRST_STEP_ROWS, 0
    while low <= high and rows_read < _MAX_ROWS:
        since = max(low, histogram.range_start(high + 1, rows))
        source = reader.rows([*pruning_conditions(filter), *start_between(since, high)])
        yield f"SELECT * FROM {source} WHERE start_ns >= {max(since, EARLIEST)} AND start_ns <= {high} AND {condition_sql(filter)}"
        rows_read += rows
        high, rows = since - 1, rows * _GROWTH


def _key_query(prefix: str) -> Callable[[str], str]:
    """Return the query for keys. With a prefix such as `resource.`, it returns the keys of that level, with the prefix."""
    level, dot, rest = prefix.partition(".")
    levels = [level] if dot and level in (*ATTRIBUTE_MAPS, *_NESTED) else list(ATTRIBUTE_MAPS)
    key_prefix, level_prefix = (rest, level + ".") if len(levels) == 1 else (prefix, "")

    def query(rows: str) -> str:
        parts = []
        for name in levels:
            if name in ATTRIBUTE_MAPS:
                parts.append(f"SELECT unnest(map_keys({ATTRIBUTE_MAPS[name]})) AS key FROM ({rows})")
            else:
                parts.append(
                    f"SELECT unnest(map_keys(e.attributes)) AS key FROM (SELECT unnest({_NESTED[name]}) AS e FROM ({rows}))"
                )
        return (
            f"SELECT ':{level_prefix}' || key AS value FROM ({' UNION ALL '.join(parts)})"
            f" WHERE starts_with(key, {text_literal(key_prefix)})"
        )

    return query


def _value_query(field: Field, prefix: str) -> Callable[[str], str]:
    """Return the query for the values of a field that begin with the prefix as text."""

    def query(rows: str) -> str:
        if field.level is Level.COLUMN:
            column = COLUMNS[field.name]
            return f"SELECT ':' || {column} AS value FROM ({rows}) WHERE starts_with({column}, {text_literal(prefix)})"
        if field.type is Type.TEXT:
            named = f"SELECT e.name AS name FROM (SELECT unnest(events) AS e FROM ({rows}))"
            return f"SELECT ':' || name AS value FROM ({named}) WHERE starts_with(name, {text_literal(prefix)})"
        parts = []
        for level, column in {**ATTRIBUTE_MAPS, **_NESTED}.items():
            if field.level.value not in (level, "any" if level in ATTRIBUTE_MAPS else level):
                continue
            source = (
                f"({rows})"
                if level in ATTRIBUTE_MAPS
                else f"(SELECT e.attributes FROM (SELECT unnest({column}) AS e FROM ({rows})))"
            )
            parts.append(
                f"SELECT {column if level in ATTRIBUTE_MAPS else 'attributes'}[{text_literal(field.name)}] AS v FROM {source}"
            )
        as_text = "CASE WHEN starts_with(v, '\"') THEN json_extract_string(v, '$') ELSE v END"
        return (
            f"SELECT '=' || v AS value FROM ({' UNION ALL '.join(parts)})"
            f" WHERE v IS NOT NULL AND starts_with({as_text}, {text_literal(prefix)})"
        )

    return query
