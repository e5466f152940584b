"""Rows of the span table by trace id, without time bounds, of one trace or of many at once.

The first half of the id, an integer, prunes files by the log's statistics; bloom filters in memory prune the others.
Of many traces, each file is read only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.duckdb.engine import FILE_COLUMN, DuckDBEngine, quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.engine.sql.file_pruning import pruned
from crannog.engine.sql.running_queries import scoped_cursor
from crannog.protocol.staged_files import cast_to_schema
from crannog.traces.search.snapshot_reader import SnapshotReader, open_reader
from crannog.traces.span_table import COPY_ORDER, SCHEMA, trace_id_high

if TYPE_CHECKING:
    import duckdb

MAX_IDS = 256
"""Bloom filters find this many traces at any age; for more, they would let every row group through."""
MAX_ROWS = 50_000
_MAX_FILES_OPENED = 4
_NO_ROWS = SCHEMA.empty_table()
_ID = pa.schema([("trace_id", pa.binary())])
_NEWEST_COPY_FIRST = [(name, "descending") for name in COPY_ORDER]
T = TypeVar("T")


def rows_of_trace(
    table: OpenTable, snapshot: Snapshot, trace_id: bytes, *, columns: Sequence[str], limit: int, exact: bool = True
) -> tuple[pa.Table, bool]:
    """Return these columns of a trace, each span once, and whether it has more than `limit` rows, which are not read.

    If not `exact`, empty lists and maps may be null: columns that are empty in all files are not read.
    """
    rows = _rows(table, snapshot, trace_id, list(columns), limit + 1, exact)
    truncated = rows.num_rows > limit
    rows = rows.slice(0, limit)
    if _has_duplicates(rows):
        copies = _rows(table, snapshot, trace_id, with_copy_order(columns), limit + 1, exact).slice(0, limit)
        rows = newest_copies(copies).select(columns)
    return rows, truncated


@dataclass(frozen=True, slots=True)
class TracePlaces:
    """Where the spans of a trace may be: in these files of the base, which never change, and in this many staged rows."""

    files: tuple[str, ...]
    staged_rows: int
    last_sequence: int | None


def places_of_trace(table: OpenTable, snapshot: Snapshot, trace_id: bytes) -> TracePlaces:
    """Return where the spans of a trace may be; equal for two snapshots only if both have the same spans of it."""
    trace_hi = trace_id_high(trace_id)
    files = pruned(snapshot.base, [Condition(0, "trace_hi", "=", (trace_hi,))]).files
    by_path = dict(zip(snapshot.local_paths(list(files)), files, strict=True))
    found = table.warehouse.duckdb.bloom_filters("trace_id").may_contain(list(by_path), trace_id)[0] if files else []
    rows = snapshot.tail.rows.select(["trace_hi", "_seq"])
    staged = rows.filter(pc.equal(rows["trace_hi"], trace_hi))["_seq"]
    return TracePlaces(tuple(sorted(by_path[path] for path in found)), len(staged), pc.max(staged).as_py())


def _rows(table: OpenTable, snapshot: Snapshot, trace_id: bytes, names: list[str], limit: int, exact: bool) -> pa.Table:
    schema = pa.schema([snapshot.base.read_schema.field(name) for name in names])
    trace_hi = trace_id_high(trace_id)
    parts = [_tail_rows(snapshot, trace_id, trace_hi, names).cast(schema)] if snapshot.tail.segments else []
    files = pruned(snapshot.base, [Condition(0, "trace_hi", "=", (trace_hi,))]).files
    if files and sum(part.num_rows for part in parts) < limit:
        parts.append(
            _base_rows(table.warehouse.duckdb, snapshot.local_paths(list(files)), trace_id, schema, limit, exact)
        )
    return pa.concat_tables(parts).slice(0, limit) if parts else schema.empty_table()


def _tail_rows(snapshot: Snapshot, trace_id: bytes, trace_hi: int, names: list[str]) -> pa.Table:
    rows = snapshot.tail.rows
    candidates = rows.select(names + [name for name in ("trace_hi", "trace_id") if name not in names]).filter(
        pc.equal(rows["trace_hi"], trace_hi)
    )
    return candidates.filter(pc.equal(candidates["trace_id"], pa.scalar(trace_id, pa.binary()))).select(names)


def _base_rows(
    engine: DuckDBEngine, paths: list[str], trace_id: bytes, schema: pa.Schema, limit: int, exact: bool
) -> pa.Table:
    paths, max_rows = engine.bloom_filters("trace_id").may_contain(paths, trace_id)
    by_id = f"WHERE trace_id = from_hex('{trace_id.hex()}')"
    with scoped_cursor(engine) as cursor:
        paths = files_with_trace(engine, cursor, paths, trace_id)
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


def files_with_trace(
    engine: DuckDBEngine, cursor: duckdb.DuckDBPyConnection, paths: list[str], trace_id: bytes
) -> list[str]:
    """Return the files that have a trace, or all of them if they are few."""
    if len(paths) <= _MAX_FILES_OPENED:
        return paths
    # Few of many files have the trace: reading only the id first costs a tenth of reading all columns.
    ids = engine.scan(paths, _ID, positions=True)
    by_id = f"WHERE trace_id = from_hex('{trace_id.hex()}')"
    return list(read(cursor, f"SELECT DISTINCT {FILE_COLUMN} FROM {ids} {by_id}")[FILE_COLUMN].to_pylist())


def with_copy_order(columns: Sequence[str]) -> list[str]:
    """Return the columns, and those that order the copies of a span by age."""
    return [*dict.fromkeys([*columns, *COPY_ORDER, "span_id"])]


def newest_copies(rows: pa.Table) -> pa.Table:
    """Return the newest row of each span: the last to arrive, then the one that ends last."""
    ordered = rows.take(pc.sort_indices(rows, sort_keys=_NEWEST_COPY_FIRST))
    indexes = pa.table({"span_id": ordered["span_id"], "index": pa.array(range(ordered.num_rows), pa.int64())})
    first = indexes.group_by("span_id", use_threads=False).aggregate([("index", "min")])["index_min"]
    return ordered.take(first.combine_chunks().sort())


def _has_duplicates(rows: pa.Table) -> bool:
    return bool(pc.count_distinct(rows["span_id"]).as_py() < rows.num_rows)


class ReadNewest(Protocol):
    """Reads from the newest snapshot of the span table; returns `nothing` if it does not exist."""

    def __call__(self, act: Callable[[OpenTable, Snapshot], T], nothing: T) -> T: ...


def row_counts(read: ReadNewest, ids: Sequence[bytes]) -> dict[bytes, int]:
    """Return the number of rows of each trace that exists, for any number of ids."""
    counts: dict[bytes, int] = {}
    for batch in id_batches(ids):
        counts |= _count_batch(read, batch)
    return counts


def rows_of_traces(
    read: ReadNewest, ids: Sequence[bytes], columns: Sequence[str], limit: int
) -> Iterator[tuple[bytes, pa.Table, bool]]:
    """Yield what `rows_of_trace` returns for each trace that exists, in order, for any number of ids; reads many at once."""

    def alone(trace_id: bytes) -> tuple[pa.Table, bool]:
        return read(
            lambda table, snapshot: rows_of_trace(table, snapshot, trace_id, columns=columns, limit=limit),
            (_NO_ROWS, False),
        )

    if len(ids) == 1:  # found faster
        rows, truncated = alone(ids[0])
        if rows.num_rows:
            yield ids[0], rows, truncated
        return
    for batch in id_batches(ids):
        counts = _count_batch(read, batch)
        for traces in read_batches([trace_id for trace_id in batch if trace_id in counts], counts):
            found = _read_batch(read, [trace_id for trace_id in traces if counts[trace_id] <= limit], columns)
            for trace_id in traces:
                if trace_id in found:
                    yield trace_id, found[trace_id], False
                elif counts[trace_id] > limit:
                    yield trace_id, alone(trace_id)[0], True


def id_batches(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield batches of up to `MAX_IDS` ids."""
    return (ids[start : start + MAX_IDS] for start in range(0, len(ids), MAX_IDS))


def _count_batch(read: ReadNewest, ids: Sequence[bytes]) -> dict[bytes, int]:
    return read(lambda table, snapshot: row_counts_in(table, snapshot, ids), {})


def _read_batch(read: ReadNewest, ids: Sequence[bytes], columns: Sequence[str]) -> dict[bytes, pa.Table]:
    return read(lambda table, snapshot: _trace_rows_in(table, snapshot, ids, columns), {}) if ids else {}


def row_counts_in(table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes]) -> dict[bytes, int]:
    """Return the number of rows, duplicates included, of each trace that exists; for up to `MAX_IDS` ids."""
    with open_reader(table, snapshot) as reader:
        found = reader.query(f"SELECT trace_id, count(*) AS n FROM {rows_of_ids_sql(reader, ids)} GROUP BY trace_id")
    return dict(zip(found["trace_id"].to_pylist(), found["n"].to_pylist(), strict=True))


def _trace_rows_in(
    table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes], columns: Sequence[str]
) -> dict[bytes, pa.Table]:
    """Return the rows of each trace that exists, each span once; for up to `MAX_IDS` ids."""
    names = with_copy_order(["trace_id", *columns])
    with open_reader(table, snapshot) as reader:
        rows = reader.query(f"SELECT {', '.join(map(quoted, names))} FROM {rows_of_ids_sql(reader, ids)}")
    rows = rows.cast(pa.schema([snapshot.base.read_schema.field(name) for name in names]))
    in_order = rows.take(pc.sort_indices(rows["trace_id"]))
    return {
        trace_id: (newest_copies(part) if _has_duplicates(part) else part).select(columns)
        for trace_id, part in split_by_trace(in_order)
    }


def read_batches(ids: Sequence[bytes], counts: Mapping[bytes, int]) -> Iterator[list[bytes]]:
    """Split traces, in order, into batches to read at once: each of up to `MAX_ROWS` rows, or of a single trace."""
    batch: list[bytes] = []
    rows = 0
    for trace_id in ids:
        if batch and rows + counts[trace_id] > MAX_ROWS:
            yield batch
            batch, rows = [], 0
        batch.append(trace_id)
        rows += counts[trace_id]
    if batch:
        yield batch


def rows_of_ids_sql(reader: SnapshotReader, ids: Sequence[bytes]) -> str:
    """Return the SQL, in parentheses, of the rows of up to `MAX_IDS` traces."""
    listed = ", ".join(f"from_hex('{trace_id.hex()}')" for trace_id in ids)
    return f"(SELECT * FROM {reader.rows_of_ids(ids)} WHERE trace_id IN ({listed}))"


def split_by_trace(rows: pa.Table) -> Iterator[tuple[bytes, pa.Table]]:
    """Yield the rows of each trace; they must be sorted by trace."""
    start = 0
    for run in pc.run_end_encode(rows["trace_id"].combine_chunks()).run_ends.to_pylist() if rows.num_rows else ():
        yield rows["trace_id"][start].as_py(), rows.slice(start, run - start)
        start = run
