"""Finds services, operations and traces by a part of their names, for one box that finds anything."""

from __future__ import annotations

import re

import pyarrow as pa

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.engine.sql.file_pruning import pruned
from crannog.engine.sql.running_queries import scoped_cursor
from crannog.traces.search.attribute_sql import text_literal
from crannog.traces.span_store import SpanStore
from crannog.traces.span_table import trace_id_high

_NO_ROWS = pa.table({"service_name": pa.array([], pa.string()), "span_name": pa.array([], pa.string())})
_NO_IDS = pa.table({"id": pa.array([], pa.string())})
MIN_PREFIX = 8
"""Digits from which a text counts as the beginning of a trace id: shorter ones match too many."""
_PREFIX = re.compile(f"[0-9a-f]{{{MIN_PREFIX},32}}")


def services_like(store: SpanStore, text: str, limit: int) -> list[str]:
    """Return the services whose name contains a text, ignoring case; those that begin with it first."""
    return [row["service_name"] for row in _names(store, "service_name", text, limit).to_pylist()]


def operations_like(store: SpanStore, text: str, limit: int) -> list[tuple[str, str]]:
    """Return services and operations whose operation's name contains a text, ignoring case; those that begin with it first."""
    found = _names(store, "span_name", text, limit, further="service_name").to_pylist()
    return [(row["service_name"], row["span_name"]) for row in found]


def _names(store: SpanStore, column: str, text: str, limit: int, further: str = "") -> pa.Table:
    wanted = text_literal(text.lower())
    columns = f"{column}, {further}" if further else column

    def act(table: OpenTable, snapshot: Snapshot) -> pa.Table:
        rows, tables = table.relation(snapshot, "spans", columns=[column, further] if further else [column])
        with scoped_cursor(table.warehouse.duckdb, tables) as cursor:
            return read(
                cursor,
                f"SELECT {columns} FROM ({rows}) WHERE contains(lower({column}), {wanted}) GROUP BY {columns}"
                f" ORDER BY NOT starts_with(lower({column}), {wanted}), length({column}), {columns} LIMIT {int(limit)}",
            )

    return store.read_newest(act, _NO_ROWS)


def trace_ids_like(store: SpanStore, text: str, limit: int) -> list[str]:
    """Return the ids of traces that begin with a text of at least 8 hexadecimal digits."""
    prefix = text.lower()
    if not _PREFIX.fullmatch(prefix):
        return []
    low, high = (trace_id_high(bytes.fromhex(prefix.ljust(32, end))) for end in "0f")
    conditions = [Condition(0, "trace_hi", ">=", (low,)), Condition(0, "trace_hi", "<=", (high,))]

    def act(table: OpenTable, snapshot: Snapshot) -> pa.Table:
        files = pruned(snapshot.base, conditions).files
        rows, tables = table.relation(snapshot, "spans", files=files, columns=["trace_hi", "trace_id"])
        with scoped_cursor(table.warehouse.duckdb, tables) as cursor:
            return read(
                cursor,
                f"SELECT DISTINCT lower(hex(trace_id)) AS id FROM ({rows}) WHERE trace_hi BETWEEN {low} AND {high}"
                f" AND starts_with(lower(hex(trace_id)), '{prefix}') ORDER BY id LIMIT {int(limit)}",
            )

    return [row["id"] for row in store.read_newest(act, _NO_IDS).to_pylist()]
