"""Exact values: decides what Arrow reads without loss, and reads the rest value by value."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crannog.errors import CallerError


class InexactValue(Exception):
    """Arrow would not read the value exactly."""


class Number(float):
    """A number that keeps its text, for decimal columns."""

    text: str

    def __new__(cls, text: str) -> Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


def decode_utf8(data: bytes, source_name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CallerError(f"{source_name} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}") from None


def parse_json(text: str, source_name: str, line: int = 1, **how: Any) -> Any:
    try:
        return json.loads(text, **how)
    except json.JSONDecodeError as error:
        raise CallerError(
            f"{source_name} is not valid JSON: {error.msg} in line {line + error.lineno - 1}, column {error.colno}"
        ) from None
    except RecursionError:
        raise CallerError(f"{source_name} is not valid JSON for a table: it is nested too deeply") from None
    except NotJson as error:
        raise CallerError(f"{source_name} is not valid JSON: {error}") from None
    except ValueError as error:
        # An integer with thousands of digits.
        raise CallerError(f"{source_name} is not valid JSON for a table: {error}") from None


class NotJson(ValueError):
    """Something that Python's parser accepts and JSON does not allow."""


def _constant(text: str) -> Any:
    raise NotJson(f"it has {text}, which JSON does not allow; leave the value out, or use null")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise NotJson(f"an object has the name {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


STRICT: dict[str, Any] = {"parse_constant": _constant, "object_pairs_hook": _without_repetition}
"""Arguments with which `parse_json` rejects what two parsers might read differently."""


def exact_value(value: Any, kind: pa.DataType) -> Any:
    """Convert a value of a JSON document for the engine; one that does not fit is unchanged, for the engine to refuse."""
    types = pa.types
    if isinstance(value, Number):
        return Decimal(value.text) if types.is_decimal(kind) else float(value)
    if types.is_binary(kind) and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            return value
    if types.is_struct(kind) and isinstance(value, dict):
        inner = {field.name: field.type for field in kind}
        return {name: exact_value(part, inner[name]) if name in inner else part for name, part in value.items()}
    if types.is_map(kind) and isinstance(value, dict):
        return {name: exact_value(part, kind.item_type) for name, part in value.items()}
    if types.is_list(kind) and isinstance(value, list):
        return [exact_value(part, kind.value_type) for part in value]
    return value


def contains_type(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Tell whether a type is, or contains, one of the wanted types."""
    return wanted(kind) or any(contains_type(kind.field(place).type, wanted) for place in range(kind.num_fields))


def is_scalar(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_calendar(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def check_numbers(column: pa.ChunkedArray) -> None:
    """Raise InexactValue if a number may have lost digits as a float."""
    if pa.types.is_floating(column.type):
        exact_below = float(1 << (24 if column.type == pa.float32() else 53))
        largest = pc.max(pc.abs(column)).as_py()
        if largest is not None and not largest < exact_below:
            raise InexactValue
