"""Traces of any size on their way out: requests of OTLP in JSON, one a line, never whole in memory.

All lines are of one snapshot, which a lease keeps, and come from DuckDB batch by batch. A large trace is neither sorted nor
held: only of spans that were sent again it is worked out first, in narrow columns, which copy counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.traces import many_traces
from crannog.traces.lookup import with_age
from crannog.traces.search.snapshot_reader import NEWEST_FIRST, Reading, reading
from crannog.traces.search.summaries import newest_copies
from crannog.traces.span_table import SCHEMA

SPANS_PER_LINE = 5_000
BYTES_PER_LINE = 8 * 1024**2
"""Of rows in memory; as JSON they stay within what a receiver takes, 64 MiB unless it is set otherwise."""
_BLOCK = 500
_AGE = "_created_at, _batch_id, start_ns, end_ns"


@dataclass(frozen=True)
class Outgoing:
    """Some traces in one snapshot. `counts` tells how many rows each has; those that are not there have none."""

    table: OpenTable
    snapshot: Snapshot
    ids: Sequence[bytes]
    counts: Mapping[bytes, int]

    def lines(self) -> Iterator[str]:
        """Yield the lines, the traces in their order and each span once.

        A line has spans of one trace, at most `SPANS_PER_LINE` of them: by their start, or as they are stored where the
        trace has more than `bulk.MOST_ROWS`.
        """
        from crannog.traces.export import request_of_rows
        from crannog.traces.ingest.otlp_json import json_of_request

        for some in _parts(self.ids):
            for part in many_traces.parts_of(some, self.counts):
                for rows in _of_lines(_blocks(self._batches(part), min(_BLOCK, SPANS_PER_LINE))):
                    # In ASCII: whatever a reader takes for the end of a line, there is none inside of one.
                    yield json.dumps(json_of_request(request_of_rows(rows)), separators=(",", ":"))

    def _batches(self, ids: Sequence[bytes]) -> Iterator[pa.Table]:
        schema = pa.schema([self.snapshot.base.readable.field(name) for name in SCHEMA.names])
        large = sum(self.counts[each] for each in ids) > many_traces.MOST_ROWS
        with reading(self.table, self.snapshot) as open_reading:
            rows = many_traces.of_ids(open_reading, ids)
            spans = _once(open_reading, rows) if large else _in_order(rows, ids)
            for batch in open_reading.batches(f"SELECT {_names(SCHEMA.names)} FROM ({spans})", _BLOCK):
                yield pa.Table.from_batches([batch]).cast(schema)


def _names(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))


def _in_order(rows: str, ids: Sequence[bytes]) -> str:
    """Return the SQL of some traces that are sorted in memory."""
    order = ", ".join(f"from_hex('{each.hex()}')" for each in ids)
    spans = newest_copies(f"SELECT {_names(with_age(SCHEMA.names))} FROM {rows}")
    return f"{spans} ORDER BY list_position([{order}], trace_id), start_ns, span_id"


def _once(open_reading: Reading, rows: str) -> str:
    """Return the SQL of one trace, whose rows are let through as they are read; DuckDB cannot sort any number of wide ones."""
    # By their hash: a collision costs time, nothing else.
    open_reading.make("twice", f"SELECT hash(span_id) AS h FROM {rows} GROUP BY h HAVING count(*) > 1")
    counting = open_reading.make(
        "counting",
        # The copies that count, of which there are several where a request had a span twice, at the same time.
        f"SELECT span_id, {_AGE}, count(*) OVER (PARTITION BY span_id) AS alike FROM"
        f" (SELECT span_id, {_AGE} FROM {rows} WHERE hash(span_id) IN (FROM twice)"
        f" QUALIFY rank() OVER (PARTITION BY span_id ORDER BY {NEWEST_FIRST}) = 1)",
    )
    if not counting:
        return rows
    wide = f"SELECT {_names(with_age(SCHEMA.names))} FROM {rows}"
    return (
        f"{wide} WHERE hash(span_id) NOT IN (FROM twice)"
        f" UNION ALL {wide} SEMI JOIN (SELECT * FROM counting WHERE alike = 1) USING (span_id, {_AGE})"
        f" UNION ALL {newest_copies(f'{wide} SEMI JOIN (SELECT * FROM counting WHERE alike > 1) USING (span_id, {_AGE})')}"
    )


def opened(table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes], held: ExitStack) -> Outgoing:
    """Look which of some traces are there, and keep the files of the snapshot until `held` ends."""
    with ExitStack() as opening:
        opening.enter_context(table.reading(snapshot))
        counts: dict[bytes, int] = {}
        for some in _parts(ids):
            counts |= many_traces.counts_of(table, snapshot, some)
        held.enter_context(opening.pop_all())
    return Outgoing(table, snapshot, ids, counts)


def _parts(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (ids[start : start + many_traces.MOST_IDS] for start in range(0, len(ids), many_traces.MOST_IDS))


def _blocks(batches: Iterable[pa.Table], size: int) -> Iterator[tuple[bytes, pa.Table]]:
    """Cut rows into blocks of one trace each; the same ones, however large the batches are that they come in."""
    block: list[pa.Table] = []
    of, room = b"", size
    for batch in batches:
        for trace_id, rows in many_traces.by_trace(batch):
            if block and trace_id != of:
                yield of, pa.concat_tables(block)
                block, room = [], size
            of = trace_id
            while rows.num_rows:
                block.append(rows.slice(0, room))
                rows, room = rows.slice(room), room - block[-1].num_rows
                if not room:
                    yield of, pa.concat_tables(block)
                    block, room = [], size
    if block:
        yield of, pa.concat_tables(block)


def _of_lines(blocks: Iterable[tuple[bytes, pa.Table]]) -> Iterator[pa.Table]:
    """Put blocks of a trace together as long as there is room in a line; cut those that are too large for one."""
    line: list[pa.Table] = []
    of, spans, size = b"", 0, 0
    for trace_id, block in blocks:
        if line and (trace_id != of or spans + block.num_rows > SPANS_PER_LINE or size + block.nbytes > BYTES_PER_LINE):
            yield from _halved(pa.concat_tables(line))
            line, spans, size = [], 0, 0
        line.append(block)
        of, spans, size = trace_id, spans + block.num_rows, size + block.nbytes
    if line:
        yield from _halved(pa.concat_tables(line))


def _halved(rows: pa.Table) -> Iterator[pa.Table]:
    if rows.nbytes <= BYTES_PER_LINE or rows.num_rows == 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _halved(rows.slice(0, half))
    yield from _halved(rows.slice(half))
