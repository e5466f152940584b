"""Several traces by their ids in one read: one by one, each of them would look into the same files again."""

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
"""Bloom filters find so many traces at any age; for more they would let every row group through."""
MAX_ROWS = 50_000
T = TypeVar("T")


class ReadSpans(Protocol):
    """Reads from the span table; gives `nothing` while there is none."""

    def __call__(self, act: Callable[[OpenTable], T], nothing: T) -> T: ...


def row_counts(read: ReadSpans, ids: Sequence[bytes]) -> dict[bytes, int]:
    """Return how many rows each of any number of traces has."""
    found: dict[bytes, int] = {}
    for start in range(0, len(ids), MAX_IDS):
        found |= _count_batch(read, ids[start : start + MAX_IDS])
    return found


def trace_rows(
    read: ReadSpans, ids: Sequence[bytes], columns: Sequence[str], limit: int
) -> Iterator[tuple[bytes, pa.Table | None]]:
    """Yield the rows of those of any number of traces that there are, in order; None for one of more than `limit` rows."""
    for start in range(0, len(ids), MAX_IDS):
        some = ids[start : start + MAX_IDS]
        known = _count_batch(read, some)
        for part in read_batches([each for each in some if each in known], known):
            found = _read_batch(read, [each for each in part if known[each] <= limit], columns)
            for each in part:
                if each in found or known[each] > limit:
                    yield each, found.get(each)


def _count_batch(read: ReadSpans, ids: Sequence[bytes]) -> dict[bytes, int]:
    return read(lambda table: table.newest(lambda of: row_counts_in(table, of, ids)), {})


def _read_batch(read: ReadSpans, ids: Sequence[bytes], columns: Sequence[str]) -> dict[bytes, pa.Table]:
    return read(lambda table: table.newest(lambda of: trace_rows_in(table, of, ids, columns)), {}) if ids else {}


def row_counts_in(table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes]) -> dict[bytes, int]:
    """Return how many rows each of up to `MAX_IDS` traces has, spans that were sent again included; without those that have none."""
    with open_reader(table, snapshot) as reader:
        found = reader.query(f"SELECT trace_id, count(*) AS n FROM {rows_of_ids_sql(reader, ids)} GROUP BY trace_id")
    return dict(zip(found["trace_id"].to_pylist(), found["n"].to_pylist(), strict=True))


def trace_rows_in(
    table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes], columns: Sequence[str]
) -> dict[bytes, pa.Table]:
    """Return the rows of up to `MAX_IDS` traces, by trace, each span once; without those that are not there."""
    names = with_copy_order(["trace_id", *columns])
    with open_reader(table, snapshot) as reader:
        rows = reader.query(f"SELECT {', '.join(map(quoted, names))} FROM {rows_of_ids_sql(reader, ids)}")
    rows = rows.cast(pa.schema([snapshot.base.read_schema.field(name) for name in names]))
    in_order = rows.take(pc.sort_indices(rows["trace_id"]))
    return {trace_id: newest_copies(part) for trace_id, part in split_by_trace(in_order)}


def read_batches(ids: Sequence[bytes], counts: Mapping[bytes, int]) -> Iterator[list[bytes]]:
    """Split traces into parts that are read at once, in order: each of about `MAX_ROWS` rows, or of one trace."""
    part: list[bytes] = []
    rows = 0
    for trace_id in ids:
        if part and rows + counts[trace_id] > MAX_ROWS:
            yield part
            part, rows = [], 0
        part.append(trace_id)
        rows += counts[trace_id]
    if part:
        yield part


def rows_of_ids_sql(reader: SnapshotReader, ids: Sequence[bytes]) -> str:
    """Return the SQL, in parentheses, of the rows of up to `MAX_IDS` traces."""
    rows = reader.rows([Condition(0, "trace_hi", "in", tuple({trace_id_high(each) for each in ids}))])
    listed = ", ".join(f"from_hex('{each.hex()}')" for each in ids)
    return f"(SELECT * FROM {rows} WHERE trace_id IN ({listed}))"


def split_by_trace(rows: pa.Table) -> Iterator[tuple[bytes, pa.Table]]:
    """Yield the rows of each trace; those of one stand together."""
    start = 0
    for run in pc.run_end_encode(rows["trace_id"].combine_chunks()).run_ends.to_pylist() if rows.num_rows else ():
        yield rows["trace_id"][start].as_py(), rows.slice(start, run - start)
        start = run
