"""A few rows as columns of Python values: how a small change is passed from its producer to its staged file.

Converting one event to Arrow and then to a file costs more than writing the file; Arrow arrays are built only on read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from crannog.protocol.small_parquet import Column, column, small_file

# pyarrow writes the file of more rows in less time.
_MAX_ROWS = 16


class RowBuffer:
    """Rows with typed columns; the values are in the form that `small_file` takes."""

    def __init__(self, columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> None:
        self.columns = columns
        self.values = values
        self.num_rows = len(values[0])

    @cached_property
    def nbytes(self) -> int:
        """The approximate size of the rows in Arrow's format."""
        return len(repr(self.values))

    @cached_property
    def table(self) -> pa.Table:
        """The rows as an Arrow table."""
        arrays = [pa.array(values, column.kind) for column, values in zip(self.columns, self.values, strict=True)]
        return pa.Table.from_arrays(arrays, names=[column.name for column in self.columns])

    def with_columns(self, columns: Sequence[Column], values: Sequence[Sequence[Any]]) -> RowBuffer:
        """Return the rows with additional columns."""
        return RowBuffer([*self.columns, *columns], [*self.values, *values])

    def fits(self, columns: Mapping[str, pa.DataType]) -> bool:
        """Tell whether the rows match these column types without a conversion."""
        return all(columns.get(column.name) == column.kind for column in self.columns)

    def to_parquet(self, metadata: Mapping[bytes, bytes]) -> bytes:
        """Return the rows as a Parquet file."""
        return small_file(self.columns, self.values, metadata)


def buffered(rows: Sequence[Sequence[Any]], kind: pa.StructType) -> pa.Table | RowBuffer:
    """Return rows, whose values are in the order of the fields of `kind`, in the form that is staged in the least time."""
    if len(rows) > _MAX_ROWS:
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array(rows, kind))])
    return RowBuffer(_columns(kind), list(zip(*rows, strict=True)))


@lru_cache(maxsize=256)
def _columns(kind: pa.StructType) -> list[Column]:
    return [column(field.name, field.type) for field in kind]


def concat_buffers(rows: Sequence[RowBuffer], wanted: pa.Schema) -> pa.Table:
    """Concatenate buffers into an Arrow table with the schema `wanted`; missing columns are null."""
    columns: dict[str, list[Any]] = {name: [] for name in wanted.names}
    for some in rows:
        given = {column.name: values for column, values in zip(some.columns, some.values, strict=True)}
        nothing = [None] * some.num_rows
        for name, values in columns.items():
            values += given.get(name, nothing)
    arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), wanted.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=wanted)
