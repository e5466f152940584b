"""Rows, keys and schemas from files, standard input and arguments, as the engine takes them.

Whole columns are read by Arrow where that gives exactly what reading value by value would. Otherwise, and whenever
Arrow refuses something, values are read one by one: the engine then names the row, the column and the value.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.errors import CallerError

FORMATS = ("json", "ndjson", "csv")
_ENDINGS = {".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv"}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_LARGEST_BLOCK = (1 << 31) - 1


class _Misfit(Exception):
    """Arrow's reading would not be exact."""


class _Number(float):
    """A number that remembers how it was written, for columns of decimals."""

    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


def read_rows(source: str, given: str | None, schema: pa.Schema) -> pa.Table | list[Any]:
    """Read the rows of a file (`-`: standard input) for a table with these columns; CallerError says what is wrong with it."""
    data = _read(source)
    match given or _format_of(source, data):
        case "csv":
            return _from_csv(data, schema, _called(source))
        case "ndjson":
            return _from_lines(data, schema, _called(source))
        case "json":
            return _from_json(data, schema, _called(source))
    raise CallerError(f"the format is one of {', '.join(FORMATS)}, got {given!r}")


def read_schema(source: str) -> Any:
    """Read a JSON Schema from a file, or from standard input if that is `-`."""
    return _parsed(_text(_read(source), _called(source)), _called(source))


def read_keys(texts: Sequence[str], schema: pa.Schema, key: Sequence[str]) -> list[Any]:
    """Read keys given as arguments: JSON values, plain text where that is no JSON, objects for keys of several columns."""
    return [_key(text, schema, key) for text in texts]


def _key(text: str, schema: pa.Schema, key: Sequence[str]) -> Any:
    try:
        value = json.loads(text, parse_float=_Number)
    except ValueError:
        value = text
    if isinstance(value, dict) and set(value) == set(key):
        return {name: _exact(inner, schema.field(name).type) for name, inner in value.items()}
    if len(key) != 1:
        example = json.dumps(dict.fromkeys(key, "…"), ensure_ascii=False)
        raise CallerError(f"the key is {', '.join(key)}: give each key as a JSON object like '{example}', got {text!r}")
    kind = schema.field(key[0]).type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        # An id such as 123 or true is text all the same; only text in quotes is JSON.
        value = value if isinstance(value, str) else text
    return _exact(value, kind)


def _called(source: str) -> str:
    return "standard input" if source == "-" else source


def _read(source: str) -> bytes:
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise CallerError(f"cannot read {source}: {error.strerror or error}") from None
    return data.removeprefix(b"\xef\xbb\xbf")


def _format_of(source: str, data: bytes) -> str:
    form = _ENDINGS.get(Path(source).suffix.lower())
    if form is None and data.lstrip()[:1] in (b"[", b"{", b""):
        form = "json"
    if form is None:
        raise CallerError(f"cannot tell the format of {_called(source)}: give --format {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    return form


def _text(data: bytes, called: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CallerError(f"{called} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}") from None


def _parsed(text: str, called: str, line: int = 1, **how: Any) -> Any:
    try:
        return json.loads(text, **how)
    except json.JSONDecodeError as error:
        raise CallerError(f"{called} is not valid JSON: {error.msg} in line {line + error.lineno - 1}, column {error.colno}") from None
    except RecursionError:
        raise CallerError(f"{called} is not valid JSON for a table: it is nested too deeply") from None


# --- JSON ------------------------------------------------------------------------------------------------------


def _from_json(data: bytes, schema: pa.Schema, called: str) -> pa.Table | list[Any]:
    text = _text(data, called)
    if not text.strip():
        return []
    if text.lstrip().startswith("["):
        return _exact_rows(_parsed(text, called, **_how(schema)), schema)
    try:
        return _exact_rows([json.loads(text, **_how(schema))], schema)
    except (ValueError, RecursionError):
        return _from_lines(data, schema, called)


def _from_lines(data: bytes, schema: pa.Schema, called: str) -> pa.Table | list[Any]:
    try:
        return _lines_by_arrow(data, schema)
    except (_Misfit, pa.ArrowException):
        pass
    how = _how(schema)
    # Only \n ends a line of NDJSON; splitlines would also cut at characters that may stand inside a text.
    lines = _text(data, called).split("\n")
    return _exact_rows([_parsed(line, called, number, **how) for number, line in enumerate(lines, 1) if line.strip()], schema)


def _how(schema: pa.Schema) -> dict[str, Any]:
    return {"parse_float": _Number} if any(_has(field.type, pa.types.is_decimal) for field in schema) else {}


def _exact_rows(rows: Any, schema: pa.Schema) -> list[Any]:
    if any(_has(field.type, kind) for field in schema for kind in (pa.types.is_decimal, pa.types.is_binary)):
        whole = pa.struct(list(schema))
        return [_exact(row, whole) for row in rows]
    return list(rows)


def _exact(value: Any, kind: pa.DataType) -> Any:
    """Return a value of a JSON document as the engine takes it; what does not fit stays, for the engine to refuse."""
    types = pa.types
    if isinstance(value, _Number):
        return Decimal(value.text) if types.is_decimal(kind) else float(value)
    if types.is_binary(kind) and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            return value
    if types.is_struct(kind) and isinstance(value, dict):
        inner = {field.name: field.type for field in kind}
        return {name: _exact(part, inner[name]) if name in inner else part for name, part in value.items()}
    if types.is_map(kind) and isinstance(value, dict):
        return {name: _exact(part, kind.item_type) for name, part in value.items()}
    if types.is_list(kind) and isinstance(value, list):
        return [_exact(part, kind.value_type) for part in value]
    return value


def _has(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Tell whether a type is, or has inside, one that is wanted."""
    return wanted(kind) or any(_has(kind.field(place).type, wanted) for place in range(kind.num_fields))


def _lines_by_arrow(data: bytes, schema: pa.Schema) -> pa.Table:
    from pyarrow import json as arrow_json

    types = pa.types
    if not all(types.is_string(f.type) or _is_plain(f.type) or _is_calendar(f.type) for f in schema):
        raise _Misfit
    read_as = pa.schema([pa.field(f.name, pa.string() if _is_calendar(f.type) else f.type) for f in schema])
    options = arrow_json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="error")
    read = arrow_json.read_json(io.BytesIO(data), parse_options=options)
    columns = []
    for field in schema:
        column = read.column(field.name)
        _check_numbers(column)
        if _is_calendar(field.type):
            # Without a zone, or a day alone: the engine knows what that means, Arrow would guess.
            if types.is_timestamp(field.type) and pc.min(pc.binary_length(column)).as_py() in range(11):
                raise _Misfit
            column = pc.cast(column, field.type)
        columns.append(column)
    return pa.table(columns, names=read.column_names)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_calendar(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _check_numbers(column: pa.ChunkedArray) -> None:
    """Raise _Misfit if a number may have lost digits on its way into a float."""
    if pa.types.is_floating(column.type):
        exact_below = float(1 << (24 if column.type == pa.float32() else 53))
        largest = pc.max(pc.abs(column)).as_py()
        if largest is not None and not largest < exact_below:
            raise _Misfit


# --- CSV -------------------------------------------------------------------------------------------------------


def _from_csv(data: bytes, schema: pa.Schema, called: str) -> pa.Table | list[Any]:
    if not data.strip():
        raise CallerError(f"{called} is empty: a CSV file starts with a line of column names")
    types = {field.name: field.type for field in schema}
    try:
        if not all(pa.types.is_decimal(kind) or pa.types.is_string(kind) or _is_plain(kind) or _is_calendar(kind) for kind in types.values()):
            raise _Misfit
        table = _csv_by_arrow(data, types)
        for column in table.columns:
            _check_numbers(column)
        return table
    except (_Misfit, pa.ArrowException):
        pass
    try:
        table = _csv_by_arrow(data, dict.fromkeys(_header(data), pa.string()))
    except pa.ArrowException as error:
        raise CallerError(f"{called} is not valid CSV: {' '.join(str(error).split())[:200]}") from None
    if len(set(table.column_names)) < len(table.column_names) or not set(types).issuperset(table.column_names):
        return table  # the engine names the column that is wrong
    columns = [[_value(text, types[name]) for text in table.column(name).to_pylist()] for name in table.column_names]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _csv_by_arrow(data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    from pyarrow import csv

    return csv.read_csv(
        io.BytesIO(data),
        # One block: a row may be of any length.
        read_options=csv.ReadOptions(block_size=min(len(data) + 1, _LARGEST_BLOCK)),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        # Nothing between two commas is null, "" in quotes is an empty text, and NA is a country.
        convert_options=csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _header(data: bytes) -> list[str]:
    from pyarrow import csv

    return list(csv.open_csv(io.BytesIO(data), parse_options=csv.ParseOptions(newlines_in_values=True)).schema.names)


def _value(text: str | None, kind: pa.DataType) -> Any:
    """Return what a cell says; text that says nothing of its kind stays, for the engine to refuse."""
    if text is None or pa.types.is_string(kind):
        return text
    try:
        if pa.types.is_boolean(kind):
            return _BOOLEANS.get(text.strip().lower(), text)
        if pa.types.is_integer(kind):
            return int(text) if _INTEGER.fullmatch(text.strip()) else text
        if pa.types.is_floating(kind):
            return text if "_" in text else float(text)
        if pa.types.is_decimal(kind) or _is_calendar(kind):
            return text.strip()
        if pa.types.is_binary(kind):
            return _exact(text, kind)
        return _exact(json.loads(text, parse_float=_Number), kind)
    except (ValueError, RecursionError):
        return text
