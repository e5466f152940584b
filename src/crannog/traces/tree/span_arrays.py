"""The spans of a trace as flat arrays of the columns that its tree needs: a million spans take little memory."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.traces.lookup import newest_copies, rows_of_trace
from crannog.traces.trace import ERROR_STATUS

NO_PARENT, MISSING_PARENT = -1, -2
_COLUMNS = ["span_id", "parent_span_id", "start_ns", "end_ns", "service_name", "span_name", "status_code"]


@dataclass(frozen=True)
class SpanArrays:
    """Each span once, sorted by start. `truncated` means that the trace has more spans than were read."""

    trace_id: bytes
    ids: pa.Array = field(repr=False)
    parents: array[int] = field(repr=False)
    starts: array[int] = field(repr=False)
    ends: array[int] = field(repr=False)
    services: pa.DictionaryArray = field(repr=False)
    names: pa.DictionaryArray = field(repr=False)
    error_count: int
    truncated: bool

    def __len__(self) -> int:
        return len(self.starts)

    def span_id(self, index: int) -> str:
        return str(self.ids[index].as_py().hex())

    def index_of(self, span_id: bytes) -> int | None:
        index = pc.index(self.ids, pa.scalar(span_id, pa.binary())).as_py()
        return None if index < 0 else int(index)


def read_span_arrays(table: OpenTable, snapshot: Snapshot, trace_id: bytes, *, limit: int) -> SpanArrays | None:
    """Read the spans of a trace, at most `limit`; None if there is no such trace."""
    rows = rows_of_trace(table, snapshot, trace_id, columns=_COLUMNS, limit=limit + 1)
    if not rows.num_rows:
        return None
    return span_arrays_of(trace_id, newest_copies(rows.slice(0, limit)), truncated=rows.num_rows > limit)


def span_arrays_of(trace_id: bytes, rows: pa.Table, *, truncated: bool = False) -> SpanArrays:
    """Return the arrays of a table that has each span once."""
    rows = rows.select(_COLUMNS)
    rows = rows.take(
        pc.sort_indices(rows, sort_keys=[("start_ns", "ascending"), ("span_id", "ascending")])
    ).combine_chunks()
    ids, parent_ids = _single_chunk(rows["span_id"]), _single_chunk(rows["parent_span_id"])
    indexes = pc.index_in(parent_ids, value_set=ids)
    parents = pc.if_else(parent_ids.is_null(), NO_PARENT, pc.fill_null(indexes, MISSING_PARENT)).cast(pa.int32())
    return SpanArrays(
        trace_id,
        ids,
        _to_array(parents, "i"),
        _to_array(_single_chunk(rows["start_ns"]), "q"),
        _to_array(_single_chunk(rows["end_ns"]), "q"),
        _single_chunk(rows["service_name"]).dictionary_encode(),
        _single_chunk(rows["span_name"]).dictionary_encode(),
        pc.sum(pc.equal(rows["status_code"], ERROR_STATUS)).as_py() or 0,
        truncated,
    )


def _single_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _to_array(column: pa.Array, code: str) -> array[int]:
    numbers = array(code)
    width = numbers.itemsize
    numbers.frombytes(column.buffers()[1].slice(column.offset * width, len(column) * width))
    return numbers


def dictionary_codes(column: pa.DictionaryArray) -> array[int]:
    """Return, for each span, the index of its text in the dictionary of a column."""
    return _to_array(column.indices, "i")
