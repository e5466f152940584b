"""Which services there are, and which operations they have: asked of the spans themselves, staged ones included."""

from __future__ import annotations

import pyarrow as pa

from crannog.engine.duckdb.engine import literal
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.engine.sql.file_pruning import pruned
from crannog.traces.query_scope import scoped_cursor


def services(table: OpenTable, *, limit: int) -> list[str]:
    """Return the names of up to `limit` services, in order."""
    found = table.newest(lambda of: _distinct(table, of, "service_name", "true", [], limit))
    return [str(name) for name in found.column(0).to_pylist()]


def operations(table: OpenTable, service: str, *, limit: int) -> list[tuple[str, str | None]]:
    """Return up to `limit` operations of a service, each with its kind, in order."""
    where = f"service_name = {literal(service)}"
    conditions = [Condition(0, "service_name", "=", (service,))]
    found = table.newest(lambda of: _distinct(table, of, "span_name, span_kind", where, conditions, limit))
    return list(zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True))


def _distinct(
    table: OpenTable, of: Snapshot, columns: str, where: str, conditions: list[Condition], limit: int
) -> pa.Table:
    query, tables = table.relation(of, "spans", files=pruned(of.base, conditions).files)
    with scoped_cursor(table.warehouse.duckdb, tables) as cursor:
        return read(cursor, f"SELECT DISTINCT {columns} FROM ({query}) WHERE {where} ORDER BY ALL LIMIT {int(limit)}")
