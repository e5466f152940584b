"""Rows of the span table by trace id, without time bounds, from the staged tail and from a few files of the base.

The first half of the id, an integer, prunes files by the log's statistics; bloom filters in memory prune the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.duckdb.engine import FILE_COLUMN, DuckDBEngine, quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.engine.sql.file_pruning import pruned
from crannog.protocol.staged_files import cast_to_schema
from crannog.traces.ids import trace_id_high
from crannog.traces.query_scope import scoped_cursor

ARRIVAL = "_created_at"
_MAX_FILES_OPENED = 4
_ID = pa.schema([("trace_id", pa.binary())])
_NEWEST_COPY_FIRST = [
    (ARRIVAL, "descending"),
    ("end_ns", "descending"),
    ("start_ns", "descending"),
    ("_batch_id", "descending"),
]


def rows_of_trace(
    table: OpenTable, snapshot: Snapshot, trace_id: bytes, *, columns: Sequence[str], limit: int, exact: bool = True
) -> pa.Table:
    """Return up to `limit` rows of a trace with these columns, and those for `newest_copies` if a span is duplicated.

    If not `exact`, empty lists and maps may be null: columns that are empty in all files are not read.
    """
    names = [*dict.fromkeys([*columns, "span_id"])]
    rows = _rows(table, snapshot, trace_id, names, limit, exact)
    return rows if _has_no_duplicates(rows) else _rows(table, snapshot, trace_id, with_copy_order(names), limit, exact)


def _rows(table: OpenTable, snapshot: Snapshot, trace_id: bytes, names: list[str], limit: int, exact: bool) -> pa.Table:
    schema = pa.schema([snapshot.base.read_schema.field(name) for name in names])
    parts = [_tail_rows(snapshot, trace_id, names).cast(schema)] if snapshot.tail.segments else []
    files = pruned(snapshot.base, [Condition(0, "trace_hi", "=", (trace_id_high(trace_id),))]).files
    if files and sum(part.num_rows for part in parts) < limit:
        parts.append(
            _base_rows(table.warehouse.duckdb, snapshot.local_paths(list(files)), trace_id, schema, limit, exact)
        )
    return pa.concat_tables(parts).slice(0, limit) if parts else schema.empty_table()


def _tail_rows(snapshot: Snapshot, trace_id: bytes, names: list[str]) -> pa.Table:
    rows = snapshot.tail.rows
    candidates = rows.select(names + [name for name in ("trace_hi", "trace_id") if name not in names]).filter(
        pc.equal(rows["trace_hi"], trace_id_high(trace_id))
    )
    return candidates.filter(pc.equal(candidates["trace_id"], pa.scalar(trace_id, pa.binary()))).select(names)


def _base_rows(
    engine: DuckDBEngine, paths: list[str], trace_id: bytes, schema: pa.Schema, limit: int, exact: bool
) -> pa.Table:
    paths, max_rows = engine.bloom_filters("trace_id").may_contain(paths, trace_id)
    by_id = f"WHERE trace_id = from_hex('{trace_id.hex()}')"
    with scoped_cursor(engine) as cursor:
        if len(paths) > _MAX_FILES_OPENED:
            # Few of many files have the trace: reading only the id first costs a tenth of reading all columns.
            ids = engine.scan(paths, _ID, positions=True)
            paths = read(cursor, f"SELECT DISTINCT {FILE_COLUMN} FROM {ids} {by_id}")[FILE_COLUMN].to_pylist()
        if not paths:
            return schema.empty_table()
        empty = engine.all_null_columns(paths)
        present = pa.schema(
            [field for field in schema if field.name not in empty or (exact and pa.types.is_nested(field.type))]
        )
        columns = ", ".join(map(quoted, present.names))
        # A limit that is not needed costs a tenth of the time.
        limit_sql = "" if max_rows is not None and max_rows <= limit else f" LIMIT {int(limit)}"
        rows = read(cursor, f"SELECT {columns} FROM {engine.scan(paths, present)} {by_id}{limit_sql}")
    return cast_to_schema(rows, schema)


def with_copy_order(columns: Sequence[str]) -> list[str]:
    """Return the columns, and those that order the copies of a span by age."""
    return [*dict.fromkeys([*columns, ARRIVAL, "_batch_id", "start_ns", "end_ns", "span_id"])]


def newest_copies(rows: pa.Table) -> pa.Table:
    """Return the newest row of each span: the last to arrive, then the one that ends last."""
    if _has_no_duplicates(rows):
        return rows
    ordered = rows.take(pc.sort_indices(rows, sort_keys=_NEWEST_COPY_FIRST))
    indexes = pa.table({"span_id": ordered["span_id"], "index": pa.array(range(ordered.num_rows), pa.int64())})
    first = indexes.group_by("span_id", use_threads=False).aggregate([("index", "min")])["index_min"]
    return ordered.take(first.combine_chunks().sort())


def _has_no_duplicates(rows: pa.Table) -> bool:
    return bool(pc.count_distinct(rows["span_id"]).as_py() == rows.num_rows)
