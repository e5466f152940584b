"""Reads the spans of a large trace: a few columns of all of them for the tree, then whole rows by where they are.

A row is found again by the number of its file and its position there, or by its number among the staged rows of the trace,
so that a window of a trace of a million spans reads a few row groups only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crannog.engine.duckdb.engine import quoted
from crannog.engine.open_table import OpenTable
from crannog.engine.snapshot import Snapshot, read
from crannog.engine.sql.running_queries import check_cancelled, scoped_cursor
from crannog.protocol.staged_files import cast_to_schema
from crannog.traces.lookup import TracePlaces, files_with_trace, newest_copies, with_copy_order
from crannog.traces.span_table import SPAN_ID_BYTES, trace_id_high

if TYPE_CHECKING:
    from crannog.traces.tree.tree import Numbers

FILE_NUMBER, ROW_NUMBER = "_file_number", "_row_number"
_STAGED = -1
_PLACE = pa.schema([pa.field(FILE_NUMBER, pa.int32()), pa.field(ROW_NUMBER, pa.int64())])


@dataclass(frozen=True)
class RowPlaces:
    """Where the row of each span is: `file_numbers` are indexes of `files`, or -1 for a staged row."""

    files: Sequence[str]
    file_numbers: Numbers = field(repr=False)
    row_numbers: Numbers = field(repr=False)


def numbers_of(column: pa.Array, kind: type | str) -> Numbers:
    """Return the memory of a column without nulls. (`to_numpy` needs a pyarrow that was loaded after numpy.)"""
    if not len(column):
        return np.empty(0, kind)
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * np.dtype(kind).itemsize)


def column_of(numbers: Numbers, kind: pa.DataType) -> pa.Array:
    """Return numbers as a column, without a copy."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def single_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def columns_of_trace(
    table: OpenTable, snapshot: Snapshot, trace_id: bytes, places: TracePlaces, columns: Sequence[str], limit: int
) -> tuple[pa.Table, bool]:
    """Return these columns of a trace and the places of its rows, each span once, and whether it has more than `limit` rows."""
    rows = _rows(table, snapshot, trace_id, places, list(columns), limit + 1)
    truncated = rows.num_rows > limit
    rows = rows.slice(0, limit)
    check_cancelled()
    if _has_duplicates(rows):
        rows = _rows(table, snapshot, trace_id, places, with_copy_order(columns), limit + 1).slice(0, limit)
        rows = newest_copies(rows).select([*columns, *_PLACE.names])
    return rows, truncated


def _has_duplicates(rows: pa.Table) -> bool:
    # Sorted as integers: a tenth of the time of counting distinct texts.
    ids = np.sort(numbers_of(single_chunk(rows["span_id"]).cast(pa.binary(SPAN_ID_BYTES)), np.int64))
    return bool((ids[1:] == ids[:-1]).any())


def _rows(
    table: OpenTable, snapshot: Snapshot, trace_id: bytes, places: TracePlaces, names: list[str], limit: int
) -> pa.Table:
    schema = pa.schema([*(snapshot.base.read_schema.field(name) for name in names), *_PLACE])
    parts = [_staged_rows(snapshot, trace_id, names).cast(schema)] if places.staged_rows else []
    if places.files and sum(part.num_rows for part in parts) < limit:
        parts.append(_base_rows(table, snapshot, trace_id, places, schema, limit))
    return pa.concat_tables(parts).slice(0, limit) if parts else schema.empty_table()


def _staged_rows(snapshot: Snapshot, trace_id: bytes, names: list[str]) -> pa.Table:
    rows = snapshot.tail.rows
    candidates = _where(
        rows.select([*dict.fromkeys([*names, "trace_id", "trace_hi"])]), "trace_hi", trace_id_high(trace_id)
    )
    count = candidates.num_rows
    candidates = candidates.append_column(_PLACE.field(0), pa.array([_STAGED], pa.int32()).take(pa.repeat(pa.scalar(0), count)))  # fmt: skip
    candidates = candidates.append_column(_PLACE.field(1), column_of(np.arange(count), pa.int64()))
    return _where(candidates, "trace_id", trace_id).select([*names, *_PLACE.names])


def _where(rows: pa.Table, name: str, value: bytes | int) -> pa.Table:
    holds = pc.equal(rows[name], pa.scalar(value, rows.schema.field(name).type))
    return rows if pc.all(holds).as_py() else rows.filter(holds)


def _base_rows(
    table: OpenTable, snapshot: Snapshot, trace_id: bytes, places: TracePlaces, schema: pa.Schema, limit: int
) -> pa.Table:
    engine = table.warehouse.duckdb
    paths = snapshot.local_paths(list(places.files))
    with scoped_cursor(engine) as cursor:
        chosen = files_with_trace(engine, cursor, paths, trace_id)
        if not chosen:
            return schema.empty_table()
        stored = pa.schema([one for one in schema if one.name not in _PLACE.names])
        columns = ", ".join(map(quoted, stored.names))
        rows = read(
            cursor,
            f"SELECT {columns}, file_index::INTEGER AS {FILE_NUMBER}, file_row_number AS {ROW_NUMBER}"
            f" FROM {engine.scan(chosen, stored)} WHERE trace_id = from_hex('{trace_id.hex()}') LIMIT {int(limit)}",
        )
    if chosen != paths:
        numbers = np.array([paths.index(path) for path in chosen], np.int32)
        found = numbers[numbers_of(single_chunk(rows[FILE_NUMBER]), np.int32)]
        rows = rows.set_column(rows.column_names.index(FILE_NUMBER), _PLACE.field(0), column_of(found, pa.int32()))
    return cast_to_schema(rows, schema)


def rows_at(
    table: OpenTable, snapshot: Snapshot, trace_id: bytes, places: RowPlaces, indexes: Numbers, columns: Sequence[str]
) -> pa.Table:
    """Return columns of the rows of some spans, in any order."""
    schema = pa.schema([snapshot.base.read_schema.field(name) for name in columns])
    files, numbers = places.file_numbers[indexes], places.row_numbers[indexes]
    parts = []
    if (files == _STAGED).any():
        parts.append(_staged_at(snapshot, trace_id, np.sort(numbers[files == _STAGED]), list(columns)).cast(schema))
    wanted = np.unique(files[files != _STAGED]).tolist()
    if wanted:
        engine = table.warehouse.duckdb
        with scoped_cursor(engine) as cursor:
            for number in wanted:
                [path] = snapshot.local_paths([places.files[number]])
                empty = engine.all_null_columns([path])
                present = pa.schema([one for one in schema if one.name not in empty])
                listed = ", ".join(map(str, np.sort(numbers[files == number]).tolist()))
                names = ", ".join(map(quoted, present.names))
                query = f"SELECT {names} FROM {engine.scan([path], present)} WHERE file_row_number IN ({listed})"
                parts.append(cast_to_schema(read(cursor, query), schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _staged_at(snapshot: Snapshot, trace_id: bytes, numbers: Numbers, columns: list[str]) -> pa.Table:
    rows = snapshot.tail.rows
    of_trace = pc.equal(single_chunk(rows["trace_hi"]), trace_id_high(trace_id)).cast(pa.uint8())
    positions = np.flatnonzero(numbers_of(of_trace, np.uint8))[numbers]
    # By batch: to take from a column of many chunks, pyarrow would copy all of it.
    found, begin = [], 0
    for batch in rows.select(columns).to_batches():
        end = begin + batch.num_rows
        inside = positions[np.searchsorted(positions, begin) : np.searchsorted(positions, end)] - begin
        if len(inside):
            found.append(batch.take(column_of(inside, pa.int64())))
        begin = end
    return pa.Table.from_batches(found)


def spans_where(table: OpenTable, snapshot: Snapshot, trace_id: bytes, places: RowPlaces, condition: str) -> Numbers:
    """Return the spans whose row meets an SQL condition; older copies of a span do not count."""
    by_id = f"trace_id = from_hex('{trace_id.hex()}') AND ({condition})"
    engine = table.warehouse.duckdb
    parts = []
    with scoped_cursor(engine) as cursor:
        if (places.file_numbers == _STAGED).any():
            cursor.register("staged_spans", _numbered_staged_rows(snapshot, trace_id))
            staged = f"SELECT {_STAGED} AS f, {ROW_NUMBER} AS r FROM staged_spans WHERE {ROW_NUMBER} >= 0 AND {by_id}"
            parts.append(read(cursor, staged))
            cursor.unregister("staged_spans")
        if places.files:
            scan = engine.scan(snapshot.local_paths(list(places.files)), snapshot.base.schema)
            parts.append(
                read(cursor, f"SELECT file_index::INTEGER AS f, file_row_number AS r FROM {scan} WHERE {by_id}")
            )
    keys = [_place_keys(numbers_of(single_chunk(part["f"]), np.int32), numbers_of(single_chunk(part["r"]), np.int64)) for part in parts]  # fmt: skip
    return np.flatnonzero(np.isin(_place_keys(places.file_numbers, places.row_numbers), np.concatenate(keys)))


def _place_keys(file_numbers: Numbers, row_numbers: Numbers) -> Numbers:
    keys: Numbers = (file_numbers.astype(np.int64) + 1 << 40) + row_numbers
    return keys


def _numbered_staged_rows(snapshot: Snapshot, trace_id: bytes) -> pa.Table:
    """Return all staged rows, with the numbers of those of the trace, -1 for others; no column is copied."""
    rows = snapshot.tail.rows
    of_trace = pc.equal(single_chunk(rows["trace_hi"]), trace_id_high(trace_id)).cast(pa.uint8())
    holds = numbers_of(of_trace, np.uint8) > 0
    return rows.append_column(ROW_NUMBER, column_of(np.where(holds, np.cumsum(holds) - 1, -1), pa.int64()))
