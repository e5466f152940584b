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
from crannog.traces.lookup import with_copy_order
from crannog.traces.search.snapshot_reader import NEWEST_COPY_FIRST, SnapshotReader, open_reader
from crannog.traces.search.summaries import newest_copies_sql
from crannog.traces.span_table import SCHEMA

SPANS_PER_LINE = 5_000
BYTES_PER_LINE = 8 * 1024**2
"""Of rows in memory; as JSON they stay within what a receiver takes, 64 MiB unless it is set otherwise."""
_BLOCK_ROWS = 500
_COPY_ORDER_COLUMNS = "_created_at, _batch_id, start_ns, end_ns"


@dataclass(frozen=True)
class TraceExport:
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

        for some in _id_batches(self.ids):
            for part in many_traces.read_batches(some, self.counts):
                for rows in _lines(_blocks(self._batches(part), min(_BLOCK_ROWS, SPANS_PER_LINE))):
                    # In ASCII: whatever a reader takes for the end of a line, there is none inside of one.
                    yield json.dumps(json_of_request(request_of_rows(rows)), separators=(",", ":"))

    def _batches(self, ids: Sequence[bytes]) -> Iterator[pa.Table]:
        schema = pa.schema([self.snapshot.base.read_schema.field(name) for name in SCHEMA.names])
        large = sum(self.counts[each] for each in ids) > many_traces.MAX_ROWS
        with open_reader(self.table, self.snapshot) as reader:
            rows = many_traces.rows_of_ids_sql(reader, ids)
            spans = _without_duplicates(reader, rows) if large else _sorted_traces(rows, ids)
            for batch in reader.batches(f"SELECT {_column_list(SCHEMA.names)} FROM ({spans})", _BLOCK_ROWS):
                yield pa.Table.from_batches([batch]).cast(schema)


def _column_list(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))


def _sorted_traces(rows: str, ids: Sequence[bytes]) -> str:
    """Return the SQL of some traces that are sorted in memory."""
    order = ", ".join(f"from_hex('{each.hex()}')" for each in ids)
    spans = newest_copies_sql(f"SELECT {_column_list(with_copy_order(SCHEMA.names))} FROM {rows}")
    return f"{spans} ORDER BY list_position([{order}], trace_id), start_ns, span_id"


def _without_duplicates(reader: SnapshotReader, rows: str) -> str:
    """Return the SQL of one trace, whose rows are let through as they are read; DuckDB cannot sort any number of wide ones."""
    # By their hash: a collision costs time, nothing else.
    reader.create_temp_table("twice", f"SELECT hash(span_id) AS h FROM {rows} GROUP BY h HAVING count(*) > 1")
    counting = reader.create_temp_table(
        "counting",
        # The copies that count, of which there are several where a request had a span twice, at the same time.
        f"SELECT span_id, {_COPY_ORDER_COLUMNS}, count(*) OVER (PARTITION BY span_id) AS alike FROM"
        f" (SELECT span_id, {_COPY_ORDER_COLUMNS} FROM {rows} WHERE hash(span_id) IN (FROM twice)"
        f" QUALIFY rank() OVER (PARTITION BY span_id ORDER BY {NEWEST_COPY_FIRST}) = 1)",
    )
    if not counting:
        return rows
    wide = f"SELECT {_column_list(with_copy_order(SCHEMA.names))} FROM {rows}"
    return (
        f"{wide} WHERE hash(span_id) NOT IN (FROM twice)"
        f" UNION ALL {wide} SEMI JOIN (SELECT * FROM counting WHERE alike = 1) USING (span_id, {_COPY_ORDER_COLUMNS})"
        f" UNION ALL {newest_copies_sql(f'{wide} SEMI JOIN (SELECT * FROM counting WHERE alike > 1) USING (span_id, {_COPY_ORDER_COLUMNS})')}"
    )


def open_export(table: OpenTable, snapshot: Snapshot, ids: Sequence[bytes], held: ExitStack) -> TraceExport:
    """Look which of some traces are there, and keep the files of the snapshot until `held` ends."""
    with ExitStack() as opening:
        opening.enter_context(table.reading(snapshot))
        counts: dict[bytes, int] = {}
        for some in _id_batches(ids):
            counts |= many_traces.row_counts_in(table, snapshot, some)
        held.enter_context(opening.pop_all())
    return TraceExport(table, snapshot, ids, counts)


def _id_batches(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (ids[start : start + many_traces.MAX_IDS] for start in range(0, len(ids), many_traces.MAX_IDS))


def _blocks(batches: Iterable[pa.Table], size: int) -> Iterator[tuple[bytes, pa.Table]]:
    """Cut rows into blocks of one trace each; the same ones, however large the batches are that they come in."""
    block: list[pa.Table] = []
    of, room = b"", size
    for batch in batches:
        for trace_id, rows in many_traces.split_by_trace(batch):
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


def _lines(blocks: Iterable[tuple[bytes, pa.Table]]) -> Iterator[pa.Table]:
    """Put blocks of a trace together as long as there is room in a line; cut those that are too large for one."""
    line: list[pa.Table] = []
    of, spans, size = b"", 0, 0
    for trace_id, block in blocks:
        if line and (trace_id != of or spans + block.num_rows > SPANS_PER_LINE or size + block.nbytes > BYTES_PER_LINE):
            yield from _split_large(pa.concat_tables(line))
            line, spans, size = [], 0, 0
        line.append(block)
        of, spans, size = trace_id, spans + block.num_rows, size + block.nbytes
    if line:
        yield from _split_large(pa.concat_tables(line))


def _split_large(rows: pa.Table) -> Iterator[pa.Table]:
    if rows.nbytes <= BYTES_PER_LINE or rows.num_rows == 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _split_large(rows.slice(0, half))
    yield from _split_large(rows.slice(half))
