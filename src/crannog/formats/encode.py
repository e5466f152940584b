"""Encodes Arrow tables as JSON, NDJSON, CSV and Arrow IPC streams, by column, in parts of bounded size."""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from crannog.formats.json_values import to_plain_json

_PART_ROWS = 8_192
# `json.dumps` would create one at each call.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def plain_column(column: pa.ChunkedArray) -> list[Any]:
    """Convert a column for JSON: integers exact, decimals as strings, times in ISO 8601, bytes in base64."""
    kind, types = column.type, pa.types
    if types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind):
        return list(column.to_pylist())
    if types.is_floating(kind):
        values = column.to_pylist()
        finite = pc.all(pc.is_finite(column), skip_nulls=True, min_count=0).as_py()
        return list(values) if finite else [to_plain_json(value) for value in values]
    if types.is_timestamp(kind) or types.is_date(kind):
        return list(_calendar(column).to_pylist())
    if types.is_decimal(kind):
        texts = pc.cast(column, pa.string())
        # Arrow writes very small decimals with an exponent.
        if not pc.any(pc.match_substring(texts, "E"), min_count=0).as_py():
            return list(texts.to_pylist())
    if types.is_binary(kind):
        return [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    return [to_plain_json(value) for value in column.to_pylist()]


def _calendar(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if not pa.types.is_timestamp(kind):
        return pc.cast(column, pa.string())
    if kind.tz != "UTC":
        return pc.replace_substring(pc.cast(column, pa.string()), " ", "T", max_replacements=1)
    # Arrow looks up every value in the time zone, even in UTC; without a zone it takes a third of the time.
    texts = pc.cast(pc.cast(column, pa.timestamp(kind.unit)), pa.string())
    return pc.binary_join_element_wise(pc.replace_substring(texts, " ", "T", max_replacements=1), "Z", "")


def json_bytes(value: Any) -> bytes:
    """Return compact JSON; text that is not valid Unicode is escaped instead of raising."""
    return _encode(value).encode("utf-8", "backslashreplace")


def parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yield a table in parts that are small enough to encode at once."""
    for start in range(0, table.num_rows, _PART_ROWS):
        yield table.slice(start, _PART_ROWS)


def _values(table: pa.Table) -> Iterable[tuple[Any, ...]]:
    return zip(*map(plain_column, table.columns), strict=True) if table.num_columns else [()] * table.num_rows


def _joined(listed: list[Any], first: bool) -> bytes:
    return (b"" if first else b",") + json_bytes(listed)[1:-1]


def rows(form: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yield rows as `json` (an array of objects), `ndjson` (an object a line) or `csv`."""
    match form:
        case "json":
            return _json_objects(tables)
        case "ndjson":
            return _ndjson(tables)
        case "csv":
            return _csv(schema, tables)
    raise ValueError(f"unknown format {form!r}")


def _json_objects(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    yield b"["
    for number, part in enumerate(tables):
        yield _joined([dict(zip(part.column_names, row, strict=True)) for row in _values(part)], number == 0)
    yield b"]"


def row_bytes(table: pa.Table) -> bytes:
    """Return the only row of a table as a JSON object."""
    [row] = _values(table)
    return json_bytes(dict(zip(table.column_names, row, strict=True)))


def json_response(table: pa.Table, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield one JSON object: the members `before`, then `rows` as arrays, then the members `after`."""
    yield json_bytes(before)[:-1] + b',"rows":['
    for number, part in enumerate(parts(table)):
        yield _joined(list(_values(part)), number == 0)
    yield b"]," + json_bytes(after)[1:]


def _ndjson(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    for part in tables:
        names = part.column_names
        yield b"".join(json_bytes(dict(zip(names, row, strict=True))) + b"\n" for row in _values(part))


def _csv(schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yield a line of names, then rows; null is an empty cell, an empty string "". Nested values are JSON text."""
    for number, part in enumerate(itertools.chain([schema.empty_table()], tables)):
        sink = pa.BufferOutputStream()
        columns = [_csv_column(column) for column in part.columns]
        arrow_csv.write_csv(
            pa.table(columns, names=part.column_names), sink, arrow_csv.WriteOptions(include_header=number == 0)
        )
        yield sink.getvalue().to_pybytes()


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    kind, types = column.type, pa.types
    if (
        types.is_string(kind)
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_floating(kind)
        or types.is_null(kind)
    ):
        return column
    texts = plain_column(column)
    if types.is_nested(kind):
        texts = [None if value is None else json_bytes(value).decode() for value in texts]
    return pa.array(texts, pa.string())


def arrow(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, failure: Callable[[Exception], bytes] | None = None
) -> Iterator[bytes]:
    """Yield an Arrow IPC stream, a batch at a time.

    With `failure`, an error of the batches ends the stream properly: an empty batch has the result of `failure` in its
    metadata as `crannog-error`.
    """
    sink = io.BytesIO()

    def taken() -> bytes:
        data = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        return data

    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema) as writer:
        yield taken()
        try:
            for batch in batches:
                writer.write_batch(batch)
                yield taken()
        except Exception as error:
            if failure is None:
                raise
            empty = pa.RecordBatch.from_pylist([], schema=schema)
            writer.write_batch(empty, custom_metadata={"crannog-error": failure(error)})
    yield taken()


class _Parts(io.RawIOBase):
    """A file that only grows, and whose bytes are taken while it does."""

    def __init__(self) -> None:
        self._written: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._written.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        """Return what was written since."""
        data = b"".join(self._written)
        self._written.clear()
        return data


_ROW_GROUP = 131_072


def parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield a Parquet file, a group of rows at a time."""
    from pyarrow import parquet as pq  # takes a while to load, and few ask for it

    sink = _Parts()
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression="zstd") as writer:
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if sum(each.num_rows for each in waiting) >= _ROW_GROUP:
                writer.write_table(pa.Table.from_batches(waiting, schema))
                waiting.clear()
                yield sink.take()
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, schema))
    yield sink.take()
