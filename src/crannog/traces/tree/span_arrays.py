"""The bones of a trace: of each span just what its tree needs, in flat arrays, so that a million spans stay small."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot
from crannog.traces.lookup import newest_of_each, rows_of_trace
from crannog.traces.trace import ERROR

NO_PARENT, MISSING_PARENT = -1, -2
_COLUMNS = ["span_id", "parent_span_id", "start_ns", "end_ns", "service_name", "span_name", "status_code"]


@dataclass(frozen=True)
class Skeleton:
    """Each span once, by start; a span is its place here. `truncated` tells that there are more spans than were read."""

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

    def span_id(self, place: int) -> str:
        return str(self.ids[place].as_py().hex())

    def place_of(self, span_id: bytes) -> int | None:
        found = pc.index(self.ids, pa.scalar(span_id, pa.binary())).as_py()
        return None if found < 0 else int(found)


def skeleton_of(table: OpenTable, snapshot: Snapshot, trace_id: bytes, *, limit: int) -> Skeleton | None:
    """Read the bones of a trace, at most of `limit` spans; None if there is no such trace."""
    rows = rows_of_trace(table, snapshot, trace_id, columns=_COLUMNS, limit=limit + 1)
    if not rows.num_rows:
        return None
    return built(trace_id, newest_of_each(rows.slice(0, limit)), truncated=rows.num_rows > limit)


def built(trace_id: bytes, rows: pa.Table, *, truncated: bool = False) -> Skeleton:
    """Return the bones of the spans in a table, each there once."""
    rows = rows.select(_COLUMNS)
    rows = rows.take(
        pc.sort_indices(rows, sort_keys=[("start_ns", "ascending"), ("span_id", "ascending")])
    ).combine_chunks()
    ids, parent_ids = _one(rows["span_id"]), _one(rows["parent_span_id"])
    places = pc.index_in(parent_ids, value_set=ids)
    parents = pc.if_else(parent_ids.is_null(), NO_PARENT, pc.fill_null(places, MISSING_PARENT)).cast(pa.int32())
    return Skeleton(
        trace_id,
        ids,
        _numbers(parents, "i"),
        _numbers(_one(rows["start_ns"]), "q"),
        _numbers(_one(rows["end_ns"]), "q"),
        _one(rows["service_name"]).dictionary_encode(),
        _one(rows["span_name"]).dictionary_encode(),
        pc.sum(pc.equal(rows["status_code"], ERROR)).as_py() or 0,
        truncated,
    )


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _numbers(column: pa.Array, code: str) -> array[int]:
    numbers = array(code)
    width = numbers.itemsize
    numbers.frombytes(column.buffers()[1].slice(column.offset * width, len(column) * width))
    return numbers


def codes_of(column: pa.DictionaryArray) -> array[int]:
    """Return, per span, the place of its text in the dictionary of a column."""
    return _numbers(column.indices, "i")
