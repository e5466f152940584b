"""Rows of the span table by trace id, without time bounds: from the staged tail in memory, and from few files of the base.

The first half of the id, a number, prunes files by the log's statistics; of the others, bloom filters in memory name those
that may hold it.
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
    """Return up to `limit` rows of a trace in these columns, with what `newest_copies` needs if a span is there twice.

    Unless they must be `exact`, an empty list or map may come as null: such columns are not opened.
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
    near = rows.select(names + [name for name in ("trace_hi", "trace_id") if name not in names]).filter(
        pc.equal(rows["trace_hi"], trace_id_high(trace_id))
    )
    return near.filter(pc.equal(near["trace_id"], pa.scalar(trace_id, pa.binary()))).select(names)


def _base_rows(
    engine: DuckDBEngine, paths: list[str], trace_id: bytes, schema: pa.Schema, limit: int, exact: bool
) -> pa.Table:
    paths, most = engine.bloom_filters("trace_id").may_contain(paths, trace_id)
    by_id = f"WHERE trace_id = from_hex('{trace_id.hex()}')"
    with scoped_cursor(engine) as cursor:
        if len(paths) > _MAX_FILES_OPENED:
            # Of many files few have the trace: to look into all of them for its id alone costs a tenth of opening every column.
            where = engine.scan(paths, _ID, positions=True)
            paths = read(cursor, f"SELECT DISTINCT {FILE_COLUMN} FROM {where} {by_id}")[FILE_COLUMN].to_pylist()
        if not paths:
            return schema.empty_table()
        empty = engine.all_null_columns(paths)
        there = pa.schema(
            [field for field in schema if field.name not in empty or (exact and pa.types.is_nested(field.type))]
        )
        wanted = ", ".join(map(quoted, there.names))
        ending = (
            "" if most is not None and most <= limit else f" LIMIT {int(limit)}"
        )  # a limit that is not needed costs a tenth
        rows = read(cursor, f"SELECT {wanted} FROM {engine.scan(paths, there)} {by_id}{ending}")
    return cast_to_schema(rows, schema)


def with_copy_order(columns: Sequence[str]) -> list[str]:
    """Return the columns, and those that tell which of two rows of a span is the newer."""
    return [*dict.fromkeys([*columns, ARRIVAL, "_batch_id", "start_ns", "end_ns", "span_id"])]


def newest_copies(rows: pa.Table) -> pa.Table:
    """Keep one row per span id, the newest: the last to arrive, of those that came together the one that ends last."""
    if _has_no_duplicates(rows):
        return rows
    ordered = rows.take(pc.sort_indices(rows, sort_keys=_NEWEST_COPY_FIRST))
    places = pa.table({"span_id": ordered["span_id"], "place": pa.array(range(ordered.num_rows), pa.int64())})
    first = places.group_by("span_id", use_threads=False).aggregate([("place", "min")])["place_min"]
    return ordered.take(first.combine_chunks().sort())


def _has_no_duplicates(rows: pa.Table) -> bool:
    return bool(pc.count_distinct(rows["span_id"]).as_py() == rows.num_rows)
