"""Metadata of the spans: services, operations, attribute keys, and which services call which."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from crannog.api.traces import AttributeKey, Dependency
from crannog.engine.duckdb.engine import literal
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.engine.sql.file_pruning import pruned
from crannog.traces.derived.definitions import ATTRIBUTE_KEYS, EDGES
from crannog.traces.derived.views import DerivedViews
from crannog.traces.query_scope import scoped_cursor
from crannog.traces.times import parse_time

_NS_PER_MINUTE = 60 * 10**9
_MINUTES_PER_DAY = 24 * 60
_LAST_MINUTE = (2**63 - 1) // _NS_PER_MINUTE
_EPOCH = dt.date(1970, 1, 1)
_MAX_DEPENDENCIES = 100_000


def services(table: OpenTable, *, limit: int) -> list[str]:
    """Return the names of up to `limit` services, sorted."""
    found = table.newest(lambda snapshot: _distinct(table, snapshot, "service_name", "true", [], limit))
    return [str(name) for name in found.column(0).to_pylist()]


def operations(table: OpenTable, service: str, *, limit: int) -> list[tuple[str, str | None]]:
    """Return up to `limit` operations of a service, each with its kind, sorted."""
    where = f"service_name = {literal(service)}"
    conditions = [Condition(0, "service_name", "=", (service,))]
    found = table.newest(lambda snapshot: _distinct(table, snapshot, "span_name, span_kind", where, conditions, limit))
    return list(zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True))


def _distinct(
    table: OpenTable, snapshot: Snapshot, columns: str, where: str, conditions: list[Condition], limit: int
) -> pa.Table:
    rows, tables = table.relation(snapshot, "spans", files=pruned(snapshot.base, conditions).files)
    with scoped_cursor(table.warehouse.duckdb, tables) as cursor:
        return read(cursor, f"SELECT DISTINCT {columns} FROM ({rows}) WHERE {where} ORDER BY ALL LIMIT {int(limit)}")


def attribute_keys(
    views: DerivedViews, spans: OpenTable, first: dt.date | None = None, last: dt.date | None = None, *, limit: int
) -> list[AttributeKey]:
    """Return up to `limit` keys that spans from day `first` to `last` have, most used first."""
    examples = [f"example_{number}" for number in (1, 2, 3)]
    found = views.query(
        spans,
        ATTRIBUTE_KEYS,
        lambda rows: (
            f"SELECT key, level, type, sum(use_count)::VARCHAR AS uses,"
            f" {', '.join(f'min({name}) AS {name}' for name in examples)} FROM {rows} GROUP BY key, level, type"
            f" ORDER BY sum(use_count) DESC, key, level, type LIMIT {int(limit)}"
        ),
        first=first,
        last=last,
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


def dependencies(views: DerivedViews, spans: OpenTable, start: Any = None, end: Any = None) -> list[Dependency]:
    """Return the calls between services, sorted by name, in whole minutes: from that of `start` to the last before `end`."""
    first = None if start is None else max(0, parse_time(start, "start") // _NS_PER_MINUTE)
    last = None if end is None else min(_LAST_MINUTE, -(-parse_time(end, "end") // _NS_PER_MINUTE) - 1)
    if last is not None and last < (first or 0):
        return []
    conditions = [f"minute >= {first}"] if first is not None else []
    conditions += [f"minute <= {last}"] if last is not None else []
    found = views.query(
        spans,
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
        for row in found.to_pylist()
    ]


def _day(minute: int | None) -> dt.date | None:
    return None if minute is None else _EPOCH + dt.timedelta(days=min(minute, _LAST_MINUTE) // _MINUTES_PER_DAY)
