"""Reads Parquet files of any size in batches, in types that a table supports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.errors import CallerError
from crannog.formats.input_files import Source

BATCH_ROWS = 50_000
_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


@contextmanager
def open_parquet(source: Source) -> Iterator[Any]:
    """Open a Parquet file. Raises CallerError if it is invalid, also while it is read."""
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source.path, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError) as error:
        raise CallerError(
            f"{source.name} is not a Parquet file that can be read: {' '.join(str(error).split())[:200]}"
        ) from None


def blocks(file: Any) -> Iterator[pa.Table]:
    """Yield the rows in batches, with at most one row group in memory."""
    for batch in file.iter_batches(batch_size=BATCH_ROWS):
        yield pa.Table.from_batches([batch])


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a table stores a column of this type; the type itself if it is supported."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return stored_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return stored_type(kind.storage_type)
    if kind in _SIGNED:
        return _SIGNED[kind]
    if types.is_float16(kind):
        return pa.float32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if types.is_date64(kind):
        return pa.date32()
    if types.is_time(kind) or types.is_null(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_large_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(child.name, stored_type(child.type)) for child in kind])
    if types.is_map(kind):
        return pa.map_(stored_type(kind.key_type), stored_type(kind.item_type))
    if hasattr(kind, "value_field"):
        return pa.list_(pa.field("element", stored_type(kind.value_type)))
    return kind


def castable_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a type that the engine can cast: times of day as text, durations as numbers."""
    if pa.types.is_time(column.type):
        return pc.cast(column, pa.string())
    if pa.types.is_duration(column.type):
        return pc.cast(column, pa.int64())
    return column
