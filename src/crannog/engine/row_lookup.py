"""One row by its key, without SQL: from the staged changes, the copy in memory, or the one file that may have it.

A key that was changed since the last fold is answered by its last change, which also hides what older places hold. For any
other key, a copy in memory and the base agree, so neither has to be brought up to date first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.duckdb.engine import DuckDBEngine, quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.rows.keys import Key
from crannog.engine.snapshot import Snapshot, duckdb_errors_translated
from crannog.protocol.staged_files import UPSERT

if TYPE_CHECKING:
    from crannog.engine.sql.hot_tables import HotCache


def row_by_key(table: OpenTable, key: Key, copies: HotCache | None) -> pa.Table | None:
    """Return the visible row of a key as a table of one row; None if it does not exist."""
    return table.newest(lambda snapshot: _find(table, snapshot, key, copies))


def _find(table: OpenTable, snapshot: Snapshot, key: Key, copies: HotCache | None) -> pa.Table | None:
    changes = _changes(snapshot, key)
    if changes is not None:
        last = changes.slice(changes.num_rows - 1)
        return snapshot.in_table_columns(last) if last["_op"][0].as_py() == UPSERT else None
    found = None if copies is None else copies.rows_of_key(table, snapshot, key)
    if found is None:
        found = _rows_in_files(table.warehouse.duckdb, snapshot, key)
    if not found:
        return None
    schema = snapshot.base.read_schema
    columns = [pa.array([value], field.type) for value, field in zip(found[0], schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _changes(snapshot: Snapshot, key: Key) -> pa.Table | None:
    """Return the staged changes of a key in commit order; None if there are none."""
    if not snapshot.tail.segments:
        return None
    rows = snapshot.tail.rows
    is_wanted: Any = None
    for name, value in zip(snapshot.key, key, strict=True):
        column = rows[name]
        equal = pc.equal(column, pa.scalar(value, column.type))
        is_wanted = equal if is_wanted is None else pc.and_(is_wanted, equal)
    found = pc.indices_nonzero(is_wanted)
    return rows.take(found) if len(found) else None


def _rows_in_files(engine: DuckDBEngine, snapshot: Snapshot, key: Key) -> list[tuple[Any, ...]]:
    from crannog.engine.sql.duckdb_compiler.terms import Condition  # loads a parser of SQL
    from crannog.engine.sql.file_pruning import pruned

    conditions = [Condition(0, name, "=", (value,)) for name, value in zip(snapshot.key, key, strict=True)]
    paths = snapshot.local_paths(list(pruned(snapshot.base, conditions).files))
    if not paths:
        return []
    schema = snapshot.base.schema
    sql = f"SELECT {columns_sql(schema)} FROM {engine.scan(paths, schema)} WHERE {key_sql(snapshot.key)}"
    with duckdb_errors_translated(), engine.statement(sql, {}) as prepared:
        return prepared.fetch(sql, key)


def columns_sql(schema: pa.Schema) -> str:
    """Return the list of all columns in SQL."""
    return ", ".join(map(quoted, schema.names))


def key_sql(key: Sequence[str]) -> str:
    """Return the condition that a row has a key, whose values are parameters."""
    return " AND ".join(f"{quoted(name)} = ${place}" for place, name in enumerate(key, 1))
