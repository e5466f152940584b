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
from crannog.traces.ids import first_half
from crannog.traces.lookup import newest_of_each, with_age
from crannog.traces.search.snapshot_reader import Reading, reading

MOST_IDS = 256
"""Bloom filters find so many traces at any age; for more they would let every row group through."""
MOST_ROWS = 50_000
T = TypeVar("T")


class Read(Protocol):
    """Reads from the span table; gives `nothing` while there is none."""

    def __call__(self, act: Callable[[OpenTable], T], nothing: T) -> T: ...


def counts(read: Read, ids: Sequence[bytes]) -> dict[bytes, int]:
    """Return how many rows each of any number of traces has."""
    found: dict[bytes, int] = {}
    for start in range(0, len(ids), MOST_IDS):
        found |= _counted(read, ids[start : start + MOST_IDS])
    return found


def rows(
    read: Read, ids: Sequence[bytes], columns: Sequence[str], limit: int
) -> Iterator[tuple[bytes, pa.Table | None]]:
    """Yield the rows of those of any number of traces that there are, in order; None for one of more than `limit` rows."""
    for start in range(0, len(ids), MOST_IDS):
        some = ids[start : start + MOST_IDS]
        known = _counted(read, some)
        for part in parts_of([each for each in some if each in known], known):
            found = _found(read, [each for each in part if known[each] <= limit], columns)
            for each in part:
                if each in found or known[each] > limit:
                    yield each, found.get(each)


def _counted(read: Read, ids: Sequence[bytes]) -> dict[bytes, int]:
    return read(lambda table: table.newest(lambda of: counts_of(table, of, ids)), {})


def _found(read: Read, ids: Sequence[bytes], columns: Sequence[str]) -> dict[bytes, pa.Table]:
    return read(lambda table: table.newest(lambda of: rows_of_traces(table, of, ids, columns)), {}) if ids else {}


def counts_of(table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes]) -> dict[bytes, int]:
    """Return how many rows each of up to `MOST_IDS` traces has, spans that were sent again included; without those that have none."""
    with reading(table, snapshot) as open_reading:
        found = open_reading.ask(f"SELECT trace_id, count(*) AS n FROM {of_ids(open_reading, ids)} GROUP BY trace_id")
    return dict(zip(found["trace_id"].to_pylist(), found["n"].to_pylist(), strict=True))


def rows_of_traces(
    table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes], columns: Sequence[str]
) -> dict[bytes, pa.Table]:
    """Return the rows of up to `MOST_IDS` traces, by trace, each span once; without those that are not there."""
    names = with_age(["trace_id", *columns])
    with reading(table, snapshot) as open_reading:
        rows = open_reading.ask(f"SELECT {', '.join(map(quoted, names))} FROM {of_ids(open_reading, ids)}")
    rows = rows.cast(pa.schema([snapshot.base.readable.field(name) for name in names]))
    in_order = rows.take(pc.sort_indices(rows["trace_id"]))
    return {trace_id: newest_of_each(part) for trace_id, part in by_trace(in_order)}


def parts_of(ids: Sequence[bytes], counts: Mapping[bytes, int]) -> Iterator[list[bytes]]:
    """Split traces into parts that are read at once, in order: each of about `MOST_ROWS` rows, or of one trace."""
    part: list[bytes] = []
    rows = 0
    for trace_id in ids:
        if part and rows + counts[trace_id] > MOST_ROWS:
            yield part
            part, rows = [], 0
        part.append(trace_id)
        rows += counts[trace_id]
    if part:
        yield part


def of_ids(open_reading: Reading, ids: Sequence[bytes]) -> str:
    """Return the SQL, in parentheses, of the rows of up to `MOST_IDS` traces."""
    rows = open_reading.rows([Condition(0, "trace_hi", "in", tuple({first_half(each) for each in ids}))])
    listed = ", ".join(f"from_hex('{each.hex()}')" for each in ids)
    return f"(SELECT * FROM {rows} WHERE trace_id IN ({listed}))"


def by_trace(rows: pa.Table) -> Iterator[tuple[bytes, pa.Table]]:
    """Yield the rows of each trace; those of one stand together."""
    start = 0
    for run in pc.run_end_encode(rows["trace_id"].combine_chunks()).run_ends.to_pylist() if rows.num_rows else ():
        yield rows["trace_id"][start].as_py(), rows.slice(start, run - start)
        start = run
