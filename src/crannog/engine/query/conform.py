"""Types as every engine gives them, so that answers are alike to the last field."""

from __future__ import annotations

import pyarrow as pa


def plain(kind: pa.DataType) -> pa.DataType:
    """Return a type as every engine gives it: nullable inside, with the usual names of elements."""
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


def in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table under the names and types of `schema`, column by column."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
