"""Single values as JSON: plain, for people and programs, or lossless, to read back as exactly the same values.

In lossless JSON, what JSON cannot express is an object with one key that starts with `$`:

    {"$bytes": "AAE="}            bytes, base64
    {"$double": "NaN"}            NaN, Infinity, -Infinity
    {"$map": [["a", 1], …]}       a map with one key that starts with $, or with a key twice
    {"$each": [1, 2]}             only stored: an attribute whose key was sent more than once, in the order sent
    {"$strindex": 7}              only stored: an index into a table of texts that spans do not have

Doubles always have a point or an exponent, integers never; both have all their digits.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

# Most values are one of these, or empty: they are passed through without a call for each.
_UNCHANGED_TYPES = frozenset({str, int, bool, type(None)})
_CONTAINERS = frozenset({dict, list, tuple})
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_plain_json(value: Any) -> Any:
    """Convert a value to JSON types: times to ISO 8601, bytes to base64, decimals and NaN or infinity to strings.

    A dataclass becomes an object of its fields.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Mapping):
        return {
            name if isinstance(name, str) else str(to_plain_json(name)): inner
            if type(inner) in _UNCHANGED_TYPES
            else to_plain_json(inner)
            for name, inner in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [inner if type(inner) in _UNCHANGED_TYPES else to_plain_json(inner) for inner in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: inner if type(inner := getattr(value, name)) in _UNCHANGED_TYPES else to_plain_json(inner)
            for name in value.__dataclass_fields__
        }
    return str(value)


def to_lossless_json(value: Any) -> Any:
    """Convert a value to JSON; a dataclass becomes an object of its fields, times ISO 8601."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$double": _name(value)}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return [inner if type(inner) in _UNCHANGED_TYPES else to_lossless_json(inner) for inner in value]
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    is_map = isinstance(value, Mapping)
    if not is_map and (isinstance(value, type) or not dataclasses.is_dataclass(value)):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    pairs = value.items() if is_map else [(name, getattr(value, name)) for name in value.__dataclass_fields__]
    document = {
        name if type(name) is str else str(name): inner
        if type(inner) in _UNCHANGED_TYPES or (type(inner) in _CONTAINERS and not inner)
        else to_lossless_json(inner)
        for name, inner in pairs
    }
    if is_map and len(document) == 1 and next(iter(document)).startswith("$"):
        return {"$map": [list(pair) for pair in document.items()]}
    return document


def _name(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def from_lossless_json(document: Any) -> Any:
    """Convert JSON from `to_lossless_json` back; dataclasses become dicts, and of a repeated key the last value counts."""
    if isinstance(document, list):
        return [item if type(item) in _UNCHANGED_TYPES else from_lossless_json(item) for item in document]
    if not isinstance(document, dict):
        return document
    if len(document) == 1:
        [(key, inner)] = document.items()
        match key:
            case "$bytes":
                return base64.b64decode(inner)
            case "$double":
                return _NOT_FINITE[inner]
            case "$map":
                return {name: from_lossless_json(item) for name, item in inner}
            case "$each":
                return from_lossless_json(inner[-1])
            case "$strindex":
                return inner
    return {
        key: inner if type(inner) in _UNCHANGED_TYPES else from_lossless_json(inner) for key, inner in document.items()
    }
