"""Result types in one form for all engines, so that results have equal schemas."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa


def plain(kind: pa.DataType) -> pa.DataType:
    """Return a type in the common form: nullable inside, with the usual names of elements."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), pa.field("value", plain(kind.item_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain(field.type)) for field in kind])
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, plain(field.type)) for field in schema])


def without_columns(rows: int) -> pa.Table:
    """Return a table with this many rows and no columns."""
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))])


def first_rows(table: pa.Table, count: int) -> pa.Table:
    """Return up to `count` rows. A slice of a table without columns would always have `count`."""
    return table.slice(0, min(count, table.num_rows))


Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def in_schema(rows: Rows, schema: pa.Schema) -> Rows:
    """Return rows with the names and types of `schema`, by position."""
    columns = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(rows.columns, schema.types, strict=True)
    ]
    return type(rows).from_arrays(columns, schema=schema)
