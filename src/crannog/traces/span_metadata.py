"""Metadata of the spans: services, operations, attribute keys, and which services call which."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from crannog.api.traces import AttributeKey, Dependency
from crannog.api.traces.requests import AttributeKeyQuery, DependencyQuery, OperationQuery, ServiceQuery
from crannog.engine.duckdb.engine import literal
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.engine.sql.file_pruning import pruned
from crannog.traces.derived.definitions import ATTRIBUTE_KEYS, EDGES
from crannog.traces.query_scope import scoped_cursor
from crannog.traces.span_store import SpanStore
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
