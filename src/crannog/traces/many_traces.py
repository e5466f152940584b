"""Reads many traces by id at once, so that each file is read only once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.engine.sql.duckdb_compiler.terms import Condition
from crannog.traces.ids import trace_id_high
from crannog.traces.lookup import newest_copies, with_copy_order
from crannog.traces.search.snapshot_reader import SnapshotReader, open_reader

MAX_IDS = 256
"""Bloom filters find this many traces at any age; for more, they would let every row group through."""
MAX_ROWS = 50_000
T = TypeVar("T")


class ReadSpans(Protocol):
    """Reads from the span table; returns `nothing` if it does not exist."""

    def __call__(self, act: Callable[[OpenTable], T], nothing: T) -> T: ...


def row_counts(read: ReadSpans, ids: Sequence[bytes]) -> dict[bytes, int]:
    """Return the number of rows of each trace that exists, for any number of ids."""
    counts: dict[bytes, int] = {}
    for batch in id_batches(ids):
        counts |= _count_batch(read, batch)
    return counts


def trace_rows(
    read: ReadSpans, ids: Sequence[bytes], columns: Sequence[str], limit: int
) -> Iterator[tuple[bytes, pa.Table | None]]:
    """Yield the rows of each trace that exists, in order, for any number of ids; None for more than `limit` rows."""
    for batch in id_batches(ids):
        counts = _count_batch(read, batch)
        for traces in read_batches([trace_id for trace_id in batch if trace_id in counts], counts):
            rows = _read_batch(read, [trace_id for trace_id in traces if counts[trace_id] <= limit], columns)
            for trace_id in traces:
                if trace_id in rows or counts[trace_id] > limit:
                    yield trace_id, rows.get(trace_id)


def id_batches(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield batches of up to `MAX_IDS` ids."""
    return (ids[start : start + MAX_IDS] for start in range(0, len(ids), MAX_IDS))


def _count_batch(read: ReadSpans, ids: Sequence[bytes]) -> dict[bytes, int]:
    return read(lambda table: table.newest(lambda snapshot: row_counts_in(table, snapshot, ids)), {})


def _read_batch(read: ReadSpans, ids: Sequence[bytes], columns: Sequence[str]) -> dict[bytes, pa.Table]:
    return (
        read(lambda table: table.newest(lambda snapshot: trace_rows_in(table, snapshot, ids, columns)), {})
        if ids
        else {}
    )


def row_counts_in(table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes]) -> dict[bytes, int]:
    """Return the number of rows, duplicates included, of each trace that exists; for up to `MAX_IDS` ids."""
    with open_reader(table, snapshot) as reader:
        found = reader.query(f"SELECT trace_id, count(*) AS n FROM {rows_of_ids_sql(reader, ids)} GROUP BY trace_id")
    return dict(zip(found["trace_id"].to_pylist(), found["n"].to_pylist(), strict=True))


def trace_rows_in(
    table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes], columns: Sequence[str]
) -> dict[bytes, pa.Table]:
    """Return the rows of each trace that exists, each span once; for up to `MAX_IDS` ids."""
    names = with_copy_order(["trace_id", *columns])
    with open_reader(table, snapshot) as reader:
        rows = reader.query(f"SELECT {', '.join(map(quoted, names))} FROM {rows_of_ids_sql(reader, ids)}")
    rows = rows.cast(pa.schema([snapshot.base.read_schema.field(name) for name in names]))
    in_order = rows.take(pc.sort_indices(rows["trace_id"]))
    return {trace_id: newest_copies(part) for trace_id, part in split_by_trace(in_order)}


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
    rows = reader.rows([Condition(0, "trace_hi", "in", tuple({trace_id_high(trace_id) for trace_id in ids}))])
    listed = ", ".join(f"from_hex('{trace_id.hex()}')" for trace_id in ids)
    return f"(SELECT * FROM {rows} WHERE trace_id IN ({listed}))"


def split_by_trace(rows: pa.Table) -> Iterator[tuple[bytes, pa.Table]]:
    """Yield the rows of each trace; they must be sorted by trace."""
    start = 0
    for run in pc.run_end_encode(rows["trace_id"].combine_chunks()).run_ends.to_pylist() if rows.num_rows else ():
        yield rows["trace_id"][start].as_py(), rows.slice(start, run - start)
        start = run
