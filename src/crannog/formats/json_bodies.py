"""Parses rows from JSON arrays, objects and NDJSON."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.formats.exact_values import (
    STRICT,
    InexactValue,
    Number,
    check_numbers,
    contains_type,
    decode_utf8,
    exact_value,
    is_calendar,
    is_scalar,
    parse_json,
)


def parse_json_rows(data: bytes, schema: pa.Schema, source_name: str, *, strict: bool = False) -> pa.Table | list[Any]:
    text = decode_utf8(data, source_name)
    if not text.strip():
        return []
    if text.lstrip().startswith("["):
        return _exact_rows(parse_json(text, source_name, **_json_reader(schema, strict)), schema)
    try:
        return _exact_rows([json.loads(text, **_json_reader(schema, strict))], schema)
    except (ValueError, RecursionError):
        return parse_ndjson_rows(data, schema, source_name, strict=strict)


def parse_ndjson_rows(
    data: bytes, schema: pa.Schema, source_name: str, *, strict: bool = False
) -> pa.Table | list[Any]:
    try:
        return _lines_by_arrow(data, schema)
    except (InexactValue, pa.ArrowException):
        pass
    how = _json_reader(schema, strict)
    # Only \n ends a line of NDJSON; splitlines would also split at characters that a string may contain.
    lines = decode_utf8(data, source_name).split("\n")
    return _exact_rows(
        [parse_json(line, source_name, number, **how) for number, line in enumerate(lines, 1) if line.strip()], schema
    )


def _json_reader(schema: pa.Schema, strict: bool) -> dict[str, Any]:
    exactly = {"parse_float": Number} if any(contains_type(field.type, pa.types.is_decimal) for field in schema) else {}
    return {**exactly, **STRICT} if strict else exactly


def _exact_rows(rows: Any, schema: pa.Schema) -> list[Any]:
    if any(contains_type(field.type, kind) for field in schema for kind in (pa.types.is_decimal, pa.types.is_binary)):
        whole = pa.struct(list(schema))
        return [exact_value(row, whole) for row in rows]
    return list(rows)


def _lines_by_arrow(data: bytes, schema: pa.Schema) -> pa.Table:
    from pyarrow import json as arrow_json

    types = pa.types
    if not all(types.is_string(f.type) or is_scalar(f.type) or is_calendar(f.type) for f in schema):
        raise InexactValue
    read_as = pa.schema([pa.field(f.name, pa.string() if is_calendar(f.type) else f.type) for f in schema])
    options = arrow_json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="error")
    read = arrow_json.read_json(io.BytesIO(data), parse_options=options)
    columns = []
    for field in schema:
        column = read.column(field.name)
        check_numbers(column)
        if is_calendar(field.type):
            # Without a time zone, or only a date: the engine knows what that means, Arrow would guess.
            if types.is_timestamp(field.type) and pc.min(pc.binary_length(column)).as_py() in range(11):
                raise InexactValue
            column = pc.cast(column, field.type)
        columns.append(column)
    return pa.table(columns, names=read.column_names)
