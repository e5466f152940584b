"""Rows from JSON arrays, objects and lines."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.formats.exact_values import (
    STRICT,
    Misfit,
    Number,
    check_numbers,
    exact,
    has,
    is_calendar,
    is_plain,
    parsed,
    text_of,
)


def rows_of_json(data: bytes, schema: pa.Schema, called: str, *, strict: bool = False) -> pa.Table | list[Any]:
    text = text_of(data, called)
    if not text.strip():
        return []
    if text.lstrip().startswith("["):
        return _exact_rows(parsed(text, called, **_how(schema, strict)), schema)
    try:
        return _exact_rows([json.loads(text, **_how(schema, strict))], schema)
    except (ValueError, RecursionError):
        return rows_of_lines(data, schema, called, strict=strict)


def rows_of_lines(data: bytes, schema: pa.Schema, called: str, *, strict: bool = False) -> pa.Table | list[Any]:
    try:
        return _lines_by_arrow(data, schema)
    except (Misfit, pa.ArrowException):
        pass
    how = _how(schema, strict)
    # Only \n ends a line of NDJSON; splitlines would also cut at characters that may stand inside a text.
    lines = text_of(data, called).split("\n")
    return _exact_rows(
        [parsed(line, called, number, **how) for number, line in enumerate(lines, 1) if line.strip()], schema
    )


def _how(schema: pa.Schema, strict: bool) -> dict[str, Any]:
    exactly = {"parse_float": Number} if any(has(field.type, pa.types.is_decimal) for field in schema) else {}
    return {**exactly, **STRICT} if strict else exactly


def _exact_rows(rows: Any, schema: pa.Schema) -> list[Any]:
    if any(has(field.type, kind) for field in schema for kind in (pa.types.is_decimal, pa.types.is_binary)):
        whole = pa.struct(list(schema))
        return [exact(row, whole) for row in rows]
    return list(rows)


def _lines_by_arrow(data: bytes, schema: pa.Schema) -> pa.Table:
    from pyarrow import json as arrow_json

    types = pa.types
    if not all(types.is_string(f.type) or is_plain(f.type) or is_calendar(f.type) for f in schema):
        raise Misfit
    read_as = pa.schema([pa.field(f.name, pa.string() if is_calendar(f.type) else f.type) for f in schema])
    options = arrow_json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="error")
    read = arrow_json.read_json(io.BytesIO(data), parse_options=options)
    columns = []
    for field in schema:
        column = read.column(field.name)
        check_numbers(column)
        if is_calendar(field.type):
            # Without a zone, or a day alone: the engine knows what that means, Arrow would guess.
            if types.is_timestamp(field.type) and pc.min(pc.binary_length(column)).as_py() in range(11):
                raise Misfit
            column = pc.cast(column, field.type)
        columns.append(column)
    return pa.table(columns, names=read.column_names)
