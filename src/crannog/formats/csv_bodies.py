"""Parses rows from CSV, which starts with a line of column names."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pyarrow as pa

from crannog.errors import CallerError
from crannog.formats.exact_values import InexactValue, Number, check_numbers, exact_value, is_calendar, is_scalar

_INTEGER = re.compile(r"[+-]?[0-9]+")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_LARGEST_BLOCK = (1 << 31) - 1


def parse_csv_rows(data: bytes, schema: pa.Schema, source_name: str) -> pa.Table | list[Any]:
    if not data.strip():
        raise CallerError(f"{source_name} is empty: a CSV file starts with a line of column names")
    types = {field.name: field.type for field in schema}
    try:
        if not all(
            pa.types.is_decimal(kind) or pa.types.is_string(kind) or is_scalar(kind) or is_calendar(kind)
            for kind in types.values()
        ):
            raise InexactValue
        table = _csv_by_arrow(data, types)
        for column in table.columns:
            check_numbers(column)
        return table
    except (InexactValue, pa.ArrowException):
        pass
    try:
        table = _csv_by_arrow(data, dict.fromkeys(_header(data), pa.string()))
    except pa.ArrowException as error:
        raise CallerError(f"{source_name} is not valid CSV: {' '.join(str(error).split())[:200]}") from None
    if len(set(table.column_names)) < len(table.column_names) or not set(types).issuperset(table.column_names):
        return table  # the engine reports the wrong column
    columns = [
        [cell_value(text, types[name]) for text in table.column(name).to_pylist()] for name in table.column_names
    ]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _csv_by_arrow(data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
    from pyarrow import csv

    return csv.read_csv(
        io.BytesIO(data),
        # One block: a row may be of any length.
        read_options=csv.ReadOptions(block_size=min(len(data) + 1, _LARGEST_BLOCK)),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        # Nothing between two commas is null, "" is an empty string, and NA is a country.
        convert_options=csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def _header(data: bytes) -> list[str]:
    from pyarrow import csv

    return list(csv.open_csv(io.BytesIO(data), parse_options=csv.ParseOptions(newlines_in_values=True)).schema.names)


def cell_value(text: str | None, kind: pa.DataType) -> Any:
    """Parse a cell; text that is not of the type is returned unchanged, for the engine to refuse."""
    if text is None or pa.types.is_string(kind):
        return text
    try:
        if pa.types.is_boolean(kind):
            return _BOOLEANS.get(text.strip().lower(), text)
        if pa.types.is_integer(kind):
            return int(text) if _INTEGER.fullmatch(text.strip()) else text
        if pa.types.is_floating(kind):
            return text if "_" in text else float(text)
        if pa.types.is_decimal(kind) or is_calendar(kind):
            return text.strip()
        if pa.types.is_binary(kind):
            return exact_value(text, kind)
        return exact_value(json.loads(text, parse_float=Number), kind)
    except (ValueError, RecursionError):
        return text
